"""The workflow of a simulation, and the invariants of every workflow at the end.

The oracle and the engine share the code that makes follow-ups. So order and exactly-once are judged
from the outputs alone: what was emitted, which follow-ups are in the log, and what became
of them.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from simulator.log import SimulatedLog
from streamydb.errors import BATCH_EARLY, BATCH_REPEATED, INTERNAL
from streamydb.procedures.modules import MemoryModules, compile_module
from streamydb.records.names import FOLLOW_UP_MARK
from streamydb.verify.oracle.outputs import OutputRecord

__all__ = ["FLOW_TEXTS", "Divergence", "FlowCalls", "OutputIdentity", "check_flows"]

OutputIdentity = tuple[str, int, int, bytes]
"""(topic, seq, index, key) of an output; the key is only told of changes."""


class Divergence(AssertionError):  # noqa: N818 - what a reader calls it
    """The pipeline did something that no serial execution of the log does; says what."""


_TEXT: Final = """
from streamydb.procedures import Abort, Workflow, procedure

VERSION = %d

flow = Workflow(
    emits={"source": ["left", "right"], "one": ["joined"], "two": ["joined"], "both": ["joined"]},
    triggers={"left": ["one"], "right": ["two"], "joined": ["sink", "watch"]},
    windows={
        "few": {"owner": "watch", "size": 3, "slide": 2},
        "late": {"owner": "watch", "size_ms": 40, "slide_ms": 10},
    },
    nested={"both": ["source", "one", "two"]},
)

@procedure(keys=lambda args: [args["key"]])
def source(db, key, amounts):
    db.add(key, sum(amounts))
    for amount in amounts:
        if amount %% 3 == 0:
            db.emit("right", {"key": key, "n": amount})
        db.emit("left", {"key": key, "n": amount * VERSION})
    return "source"

@procedure(keys=lambda args: [each["key"] for each in args["batch"]])
def one(db, batch):
    for each in batch:
        if each["n"] == 7:
            raise Abort("seven")
        db.append(each["key"] + "/list", 1) if each["n"] == 11 else None
        db.emit("joined", {"n": each["n"], "at": db.batch})

@procedure(keys=lambda args: [each["key"] for each in args["batch"]])
def two(db, batch):
    db.emit("joined", {"n": -len(batch), "at": db.batch})

@procedure(keys=lambda args: {"keys": ["flow/sum"], "reads": ["k0"]})
def sink(db, batch):
    seen = db.get("flow/sum", {"last": 0, "sum": 0})
    total = seen["sum"] + sum(each["n"] for each in batch)
    db.put("flow/sum", {"last": db.batch, "sum": total})
    return db.get("k0")

@procedure(keys=lambda args: ["flow/seen"])
def watch(db, batch):
    few, late = db.window("few"), db.window("late")
    for each in batch:
        few.insert(each["n"])
        late.insert(each["n"])
    if few.slid():
        db.put("flow/seen", [few.items(), late.items()])

@procedure
def both(db, key, amounts):
    return [db.call("source", key=key, amounts=amounts)]
"""
FLOW_TEXTS: Final = tuple((_TEXT % version).encode() for version in (1, 2))
_MODULES: Final = MemoryModules()
_VERSIONS: Final = tuple((_MODULES.put(text), compile_module("flow", text)) for text in FLOW_TEXTS)

_CONSTRAINTS: Final = (
    {"declare": {"name": "sum", "prefix": "flow/sum", "schema": {
        "properties": {"sum": {"maximum": 15}}}}},
    {"declare": {"name": "seen", "prefix": "flow/seen", "length": {"max": 1}}},
    {"drop": "sum"},
    {"drop": "seen"},
)  # fmt: skip


class FlowCalls:
    """Draws deploys of the workflow, and the calls that enter it."""

    def __init__(
        self, rng: random.Random, keys: list[str], rate: float, *, constraints: bool = False
    ) -> None:
        """Every record is one of ours with probability ``rate``.

        ``constraints``: some of them are constraints on what follow-ups write.
        """
        self._constraints = constraints
        self._random = rng
        self._keys = keys
        self._rate = rate
        self._begun = False

    def wanted(self) -> bool:
        """Return True if the next record is one of ours."""
        return self._random.random() < self._rate

    def parts(self) -> dict[str, Any]:
        """The fields of a transaction, without its id."""
        rng = self._random
        if not self._begun or rng.random() < 0.05:
            self._begun = True
            digest, module = rng.choice(_VERSIONS)
            procedures = {name: list(args) for name, args in module.procedures.items()}
            if rng.random() < 0.1:
                del procedures["two"]
            return {"deploy": {"module": "flow", "hash": digest, "procedures": procedures}}
        if self._constraints and rng.random() < 0.1:
            return {"constrain": rng.choice(_CONSTRAINTS)}
        key = rng.choice(self._keys)
        amounts = [rng.choice([1, 2, 3, 5, 6, 7, 11]) for _ in range(rng.randint(0, 4))]
        name = "both" if rng.random() < 0.2 else "source"
        keys = [key, "$flows/flow"][: 1 if rng.random() < 0.05 else 2]
        call = {"procedure": f"flow.{name}", "args": {"key": key, "amounts": amounts}, "keys": keys}
        return {"call": call}


def check_flows(
    log: SimulatedLog,
    first: Mapping[OutputIdentity, OutputRecord],
    state: Mapping[str, tuple[bytes, int]],
) -> None:
    """Every follow-up was executed exactly once, in the order in which it was made.

    Raises:
        Divergence: one was not.

    """
    made = {
        msgspec.json.decode(output.value or b"")["id"]: output.value
        for (topic, *_), output in sorted(first.items())
        if topic == "transactions"
    }
    for records in log.partitions.values():
        for record in records:
            if record.value is not None and record.value.startswith(FOLLOW_UP_MARK):
                name = msgspec.json.decode(record.value)["id"]
                if made.get(name) != record.value:
                    raise Divergence(f"a follow-up that nobody made: {record.value!r}")
    done: dict[str, int] = {}
    for (topic, seq, *_), output in sorted(first.items()):
        if topic != "results" or output.key is None or output.key.decode() not in made:
            continue
        code = msgspec.json.decode(output.value or b"")["code"]
        if code in (BATCH_EARLY, BATCH_REPEATED):
            continue
        name = output.key.decode()
        if name in done and code != INTERNAL:  # what our decoder fails on, it fails on again
            raise Divergence(f"{name} was executed at {done[name]} and at {seq}")
        done[name] = seq
    if list(done) != list(made):
        raise Divergence(f"follow-ups made {list(made)[:50]}, executed {list(done)[:50]}")
    counts = msgspec.json.decode(state.get("$flows/flow", (b'{"done":0,"made":0}', 0))[0])
    if counts != {"done": len(done), "made": len(made)}:
        raise Divergence(f"{len(made)} follow-ups, {len(done)} executed, counted as {counts}")
    _batches_in_order(made, done, _entries(first))


def _entries(first: Mapping[OutputIdentity, OutputRecord]) -> dict[int, str]:
    """Return the procedure that each transaction called, by what it returned; by seq."""
    found = {}
    for (topic, seq, *_), output in first.items():
        if topic == "results":
            result = msgspec.json.decode(output.value or b"")
            found[seq] = str(result.get("returned"))
    return found


def _batches_in_order(
    made: Mapping[str, bytes | None], done: Mapping[str, int], entries: Mapping[int, str]
) -> None:
    """Each procedure saw the batches of each stream in order, and each batch ran level by level.

    In the order of emission, that is; and in the order of entry, for batches that entered alike.
    """
    level = {"one": 1, "two": 1, "sink": 2, "watch": 2}
    seen: dict[tuple[str, ...], int] = {}
    reached: dict[int, int] = {}
    for name in done:
        call = msgspec.json.decode(made[name] or b"")["call"]
        procedure, batch = call["procedure"].partition(".")[2], call["batch"]
        emitted, entered = int(name.split("/")[1]), batch["id"]
        for place, at in (
            ((procedure, batch["stream"]), emitted),
            ((procedure, batch["stream"], entries[entered]), entered),
        ):
            if at < seen.get(place, 0):
                raise Divergence(f"{procedure} took batch {entered} after {seen[place]}: {place}")
            seen[place] = at
        if level[procedure] < reached.get(batch["id"], 0):
            raise Divergence(f"batch {batch['id']} came to {procedure} after a later procedure")
        reached[batch["id"]] = level[procedure]
