"""What if, held against brute force: the log is executed twice by itself, once rewritten.

Logs are the simulator's: markers, hostile records, repeated ids, deploys, calls, several
partitions. In the rewritten one each deploy of the module names the procedures of the replacement,
and a source of modules gives the replacement for every hash; a constraint is put into the state.
"""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import msgspec
import pytest

from simulator.procedures import MODULES
from streamydb.backup.copy import state_at
from streamydb.backup.state import State
from streamydb.procedures.modules import Module, compile_module
from streamydb.records import Transaction, canonical, decode
from streamydb.verify.oracle.core import Oracle
from streamydb.verify.oracle.order import Ordered, released
from streamydb.verify.oracle.outputs import OutputRecord
from streamydb.verify.oracle.steps import payload_hash_of
from streamydb.verify.whatif import History, OtherRules, Stretch, WhatIfDifference, rules_of, whatif
from tests.support.seeds import seeds
from tests.support.states import Written, written
from tools.golden import GoldenLog

pytestmark = pytest.mark.randomized

SEEDS = seeds(30, 6)
KEY = "$procedures/sim"
HIDDEN = (KEY, "$constraints")
VERSIONS = sorted(text for text in MODULES.texts.values() if b"def sloppy" in text)
CHANGED = VERSIONS[-1].replace(b"by * VERSION", b"by * 5")
REPLACEMENT = CHANGED.replace(b"db.add(source", b"db.max(source")
RULE: dict[str, Any] = {"name": "small", "prefix": "k1", "type": "number", "max": 3}


class Replaced:
    """The modules of the rewritten log."""

    def __init__(self, module: Module) -> None:
        self.module = module

    def find(self, name: str, digest: str) -> Module:
        return self.module if name == "sim" else MODULES.find(name, digest)


def rewritten(record: Ordered, module: Module) -> Ordered:
    """A deploy of the module with the replacement's procedures; payloads stay apart."""
    txn = decode(record.value)
    if not isinstance(txn, Transaction) or txn.deploy is msgspec.UNSET:
        return record
    if txn.deploy.module != "sim":
        return record
    raw = json.loads(record.value or b"")
    raw["deploy"]["procedures"] = {name: list(args) for name, args in module.procedures.items()}
    hashed = payload_hash_of(record.value or b"", txn)  # with another deadline it is the same one
    blanks = b" " * (1 + sum(hashed) % 97)
    return record._replace(value=json.dumps(raw).encode() + blanks)


def brute(
    made: Written, module: Module | None, rule: dict[str, Any] | None, first: int, last: int
) -> tuple[list[tuple[Any, Any]], dict[str, Any], dict[str, Any]]:
    """What each transaction of the stretch came to, without and with other rules; both states."""
    order = released(made.log.partitions, made.config.partitions)
    was = Oracle("sim", made.config.id_window, modules=MODULES)
    for record in order[: first - 1]:
        was.apply(record.value, record.partition, record.offset, record.ts_ms)
    now = copy.deepcopy(was)
    if module is not None:
        now.modules = Replaced(module)
        if KEY in now.state:
            value = json.loads(now.state[KEY][0])
            value["procedures"] = {n: list(args) for n, args in module.procedures.items()}
            now.state[KEY] = canonical(value), now.state[KEY][1]
    if rule is not None:
        rest = {name: rule[name] for name in rule if name != "name"}
        before = json.loads(now.state.get("$constraints", (b"{}", 0))[0])
        rules = canonical({**before, rule["name"]: {**rest, "since": first - 1}})
        now.state["$constraints"] = rules, first - 1
    found = []
    for record in order[first - 1 : last]:
        other = record if module is None else rewritten(record, module)
        place = record.partition, record.offset, record.ts_ms
        found.append((told(was.apply(record.value, *place)), told(now.apply(other.value, *place))))
    return found, was.state, now.state


def told(outputs: list[OutputRecord]) -> dict[str, Any]:
    """What counts of a transaction's outputs."""
    result = json.loads(outputs[0].value or b"")
    changes = [(each.key or b"", json.loads(each.value))
               for each in outputs if each.topic == "changes" and each.value]  # fmt: skip
    verdict = result["status"], result["code"]
    return {
        "verdict": verdict,
        "reads": {k: v for k, v in result["reads"].items() if k not in HIDDEN},
        "returned": result.get("returned"),
        "writes": {k.decode(): c["after"] for k, c in changes if k.decode() not in HIDDEN},
    }


def expected(found: list[tuple[Any, Any]], first: int) -> set[tuple[int, str]]:
    """The differences by seq and kind, as brute force has them."""
    kinds = set()
    for seq, (was, now) in enumerate(found, start=first):
        same = was["verdict"] == now["verdict"]
        names = [] if same else ["verdict"]
        names += ["writes", *(["reads", "returned"] if same else [])]
        kinds |= {(seq, name) for name in names if was[name] != now[name]}
    return kinds


def hidden(difference: WhatIfDifference) -> bool:
    """Whether a difference is one that the rewriting has, or hides."""
    if difference.kind in ("reason", "emitted"):
        return True
    sides = [json.loads(side) if side else {} for side in (difference.before, difference.after)]
    if difference.kind in ("reads", "writes"):
        sides = [{k: v for k, v in side.items() if k not in HIDDEN} for side in sides]
    return bool(sides[0] == sides[1])


def state_of(made: Written, history: History, seq: int) -> State:
    """The state at a seq, as a backup has it."""
    with state_at(
        history.source, made.config, None, seq, history.ends, MODULES, lambda *_: None
    ) as (state, _):
        return State(state.about, list(state.values), state.ids, state.verdicts)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_brute_force_finds_the_same(seed: int) -> None:
    made, dice = written(seed), random.Random(f"what if {seed}")
    source = GoldenLog(made.log.partitions)
    history = History(
        "sim", source, source.ends(), made.config.partitions, made.config.id_window, MODULES
    )
    end = len(released(made.log.partitions, made.config.partitions))
    first = dice.choice([1, dice.randint(1, end)])
    last = dice.choice([end, dice.randint(first, end)])
    module = compile_module("sim", REPLACEMENT) if dice.random() < 0.8 else None
    rule = RULE if module is None or dice.random() < 0.5 else None
    rules = rules_of({}, [rule] if rule else [])
    if module is not None:
        rules = OtherRules({"sim": module}, rules.constrain)
    found: list[WhatIfDifference] = []
    report = whatif(history, rules, Stretch(first, last), found.append)
    wanted, was, now = brute(made, module, rule, first, last)
    assert {(d.seq, d.kind) for d in found if d.kind != "value" and not hidden(d)} == expected(
        wanted, first
    )
    values = {json.loads(d.before or "")["key"] for d in found if d.kind == "value"}
    assert values == {
        key for key in {*was, *now} - set(HIDDEN)
        if was.get(key, (None,))[0] != now.get(key, (None,))[0]
    }  # fmt: skip
    assert report.to_seq == last
    _from_a_state(made, history, rules, (first, last), found)


def _from_a_state(
    made: Written,
    history: History,
    rules: OtherRules,
    stretch: tuple[int, int],
    found: list[WhatIfDifference],
) -> None:
    """With a state to begin with the answer is the same."""
    if stretch[0] == 1:
        return
    near = random.Random(f"state {stretch}").randint(1, stretch[0] - 1)
    state = state_of(made, history, near)
    begun = History(
        history.database, history.source, history.ends, history.partitions, history.id_window,
        history.modules, lambda _: state,
    )  # fmt: skip
    again: list[WhatIfDifference] = []
    report = whatif(begun, rules, Stretch(*stretch), again.append)
    assert again == found
    assert report.started_at == near


def test_something_differed_and_something_did_not() -> None:
    """The logs above are such that the rules matter."""
    counts = []
    for seed in range(6):
        made = written(seed)
        source = GoldenLog(made.log.partitions)
        history = History("sim", source, source.ends(), made.config.partitions,
                          made.config.id_window, MODULES)  # fmt: skip
        rules = OtherRules({"sim": compile_module("sim", REPLACEMENT)}, ())
        counts.append(whatif(history, rules, Stretch()).differing)
    assert any(counts)
    assert len(set(counts)) > 1
