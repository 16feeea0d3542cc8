"""Calls whose keys others move at random, held against what the log says in plain Python."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import UNSET

from streamydb.client import ConflictError, ProcedureAbortedError
from streamydb.procedures.modules import compile_module
from streamydb.testing.clients import Kind, MemoryHost
from tests.support.workflows import HEAD
from tests.unit.client.test_client_random import append, client_of, put

SHOP = (
    HEAD
    + """
@procedure
def follow(db, start):
    place = start
    while isinstance(db.get(place), str):
        place = db.get(place)
    return db.add(place, 1)

@procedure
def loose(db, key):
    value = db.get("p0")
    db.put(key, value)
    return value

@procedure
def census(db, into):
    place = db.get("p0")
    prefix = place if isinstance(place, str) else "p"
    found = db.scan(prefix)
    db.put(into, db.count(prefix))
    return [[key, value] for key, value in found]

@procedure(keys=lambda args: {"keys": [args["key"]], "reads": ["limit"]})
def raise_to(db, key, amount):
    if amount > db.get("limit", 4):
        raise Abort("above")
    return db.max(key, amount)
"""
)

Rival = Callable[[], None]


def rivals(rng: random.Random, host: MemoryHost) -> Rival:
    """Moves pointers and the limit, so that the keys of calls change under them."""

    def act() -> None:
        if rng.random() < 0.4:
            number = rng.randrange(4)
            target = rng.choice([f"p{number + 1}", f"p{rng.randrange(number + 1, 6)}", number])
            put(host, {f"p{number}": target, "limit": rng.randrange(8)})

    return act


def executed(state: dict[str, Any], call: dict[str, Any], met: set[str]) -> tuple[str, Any]:
    """What a call does with a state, in plain Python: how it ends, and what it returns.

    ``met`` gets the keys that decide which keys it touches.
    """
    args, name = call["args"], call["procedure"].partition(".")[2]
    allowed = {*call.get("keys", []), *call.get("reads", [])}
    if name == "follow":
        path = [args["start"]]
        while isinstance(state.get(path[-1]), str):
            path.append(state[path[-1]])
        met |= set(path)
        if not allowed >= set(path) or path[-1] not in call.get("keys", []):
            return "undeclared-key", None
        state[path[-1]] = state.get(path[-1], 0) + 1
        return "committed", state[path[-1]]
    if name == "loose":
        state[args["key"]] = state["p0"]
        met.add("p0")
        return "committed", state["p0"]
    if name == "census":
        prefix = state["p0"] if isinstance(state["p0"], str) else "p"
        met.add("p0")
        if not any(prefix.startswith(each["prefix"]) for each in call.get("ranges", [])):
            return "undeclared-key", None
        found = [[key, state[key]] for key in sorted(state) if key.startswith(prefix)]
        state[args["into"]] = len(found)
        return "committed", found
    if args["amount"] > state.get("limit", 4):
        return "procedure-aborted", None
    state[args["key"]] = max(state.get(args["key"], args["amount"]), args["amount"])
    return "committed", state[args["key"]]


@pytest.mark.parametrize("kind", ["http", "direct"])
@pytest.mark.parametrize("seed", range(6))
def test_a_call_has_its_effect_once_whoever_moves_its_keys(kind: Kind, seed: int) -> None:
    rng = random.Random(f"calls {seed}")
    with MemoryHost() as host:
        host.database.modules.put(SHOP.encode())
        append(host, deploy=compile_module("shop", SHOP.encode()).record)
        put(host, {"p0": "p1", "limit": 4})
        act, before = rivals(rng, host), host.faults.before

        def disturbed(request: Any) -> None:
            act()
            before(request)

        host.faults.before = disturbed  # type: ignore[method-assign]
        client = client_of(host, kind, blocking=True, conflicts_max=40)
        returned: list[Any] = []
        for number in range(20):
            host.faults.refused += rng.choice([0, 0, 1])
            host.faults.lost += rng.choice([0, 0, 1])
            name, args = rng.choice([
                ("follow", {"start": f"p{rng.randrange(5)}"}),
                ("loose", {"key": f"copy{number}"}),
                ("census", {"into": rng.choice([f"p9{number}", f"copy{number}"])}),
                ("raise_to", {"key": "high", "amount": rng.randrange(8)}),
            ])  # fmt: skip
            pinned = rng.random() < 0.5
            try:
                done = client.call(f"shop.{name}", args, pinned=pinned)
            except (ProcedureAbortedError, ConflictError):
                continue
            returned.append((done.seq, done.returned, pinned))
        judge(host, returned)
    assert len(returned) > 8


def judge(host: MemoryHost, returned: list[tuple[int, Any, bool]]) -> None:
    """Execute the log in plain Python; every call that was committed has been returned once.

    What a pinned call has read is unchanged.
    """
    database = host.database
    state: dict[str, Any] = {}
    versions: dict[str, int] = {}
    committed = []
    pinned = {seq for seq, _, pinned in returned if pinned}
    for result in database.log.results:
        if result.duplicate is not UNSET:
            continue
        record = json.loads(database.log.records[result.source.offset])
        checks = record.get("checks", [])
        pins = {each["key"]: each["version"] for each in checks if "key" in each}
        if "call" in record:
            if result.code == "check-failed":
                assert pins
                continue
            before, met = dict(state), set[str]()
            how, value = executed(state, record["call"], met)
            assert (result.code or "committed") == how, record
            if how == "committed":
                committed.append((result.seq, value))
                assert pins == {key: versions.get(key, 0) for key in pins}
                for each in (check for check in checks if "range" in check):
                    seen = [k for k in before if k.startswith(each["range"]["prefix"])]
                    assert len(seen) == each["count"]
                    assert max((versions[k] for k in seen), default=0) <= each["version_le"]
                assert met <= pins.keys() or result.seq not in pinned
                versions |= {key: result.seq for key in state if state[key] != before.get(key)}
                assert result.returned is not UNSET
                assert json.loads(bytes(result.returned)) == value
        for update in record.get("updates", []):
            state[update["key"]], versions[update["key"]] = update["value"], result.seq
    assert committed == [each[:2] for each in returned]
    shown = database.model.snapshot()
    assert {e.key: json.loads(e.value) for e in shown.scan() if e.key[0] != "$"} == state
