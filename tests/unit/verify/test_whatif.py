"""What if: replaced modules and constraints, one question at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from streamydb.backup.pieces import Piece
from streamydb.errors import ConfigurationError
from streamydb.procedures.modules import MemoryModules, ModuleRefused, compile_module, hash_of
from streamydb.records.rulings import Rulings
from streamydb.verify.whatif import (
    History,
    OtherRules,
    Stretch,
    WhatIfDifference,
    WhatIfError,
    WhatIfReport,
    rules_of,
    whatif,
)
from streamydb.verify.whatif.parquet import SCHEMA, DifferencesFile
from tests.support.workflows import VOTER, Log

SHOP = """
def sell(db, item: str, count: int):
    db.add(item, -count, min=0)
    return db.add("sold", count)
"""
STRICT = """
from streamydb.procedures import Abort

def sell(db, item: str, count: int):
    if count > 2:
        raise Abort("two each")
    db.add(item, -count, min=0)
    return db.add("sold", count)
"""


class Source:
    """A log with one partition as a source: record n was appended at n seconds."""

    def __init__(self, records: list[bytes]) -> None:
        self.records = records

    def pieces(self, partition: int, start: int, end: int) -> Any:
        offsets = np.arange(start, end, dtype=np.int64)
        if start < end:
            yield Piece(partition, offsets, 1000 + offsets, [None] * (end - start),
                        list(self.records[start:end]))  # fmt: skip

    def rulings(self) -> Rulings:
        return Rulings()


def history(records: list[bytes], *texts: str, modules: Any = None) -> History:
    held = modules or MemoryModules({hash_of(text.encode()): text.encode() for text in texts})
    return History("shop", Source(records), {0: len(records)}, 1, 1000, held)


def record(name: str, **parts: Any) -> bytes:
    return json.dumps({"id": name, **parts}).encode()


def deploy(text: str, name: str = "shop") -> bytes:
    module = compile_module(name, text.encode())
    procedures = {each: list(args) for each, args in module.procedures.items()}
    given = {"module": name, "hash": module.hash, "procedures": procedures}
    return record(f"deploy-{module.hash[-4:]}", deploy=given)


def sell(name: str, count: int) -> bytes:
    call = {"procedure": "shop.sell", "args": {"item": "tea", "count": count},
            "keys": ["tea", "sold"]}  # fmt: skip
    return record(name, call=call, reads=["sold"])


def put(name: str, key: str, value: Any) -> bytes:
    return record(name, updates=[{"op": "put", "key": key, "value": value}])


def asked(
    wanted: History, rules: OtherRules, first: int = 1, last: int | None = None
) -> tuple[WhatIfReport, list[WhatIfDifference]]:
    found: list[WhatIfDifference] = []
    report = whatif(wanted, rules, Stretch(first, last), found.append)
    return report, found


def replaced(text: str, name: str = "shop") -> OtherRules:
    return OtherRules({name: compile_module(name, text.encode())})


def shown(found: list[WhatIfDifference]) -> list[tuple[Any, ...]]:
    return [
        (d.seq, d.id, d.kind, d.before and json.loads(d.before), d.after and json.loads(d.after))
        for d in found
    ]


SALES = [deploy(SHOP), put("stock", "tea", 10), sell("a", 2), sell("b", 3), sell("c", 1)]


def test_another_module_changes_verdicts_reads_and_final_values() -> None:
    report, found = asked(history(SALES, SHOP), replaced(STRICT))
    committed, aborted = (
        {"status": "committed", "code": None},
        {"status": "aborted", "code": "procedure-aborted"},
    )
    assert shown(found) == [
        (4, "b", "verdict", committed, aborted),
        (4, "b", "writes", {"tea": 5, "sold": 5}, {}),
        (5, "c", "reads", {"sold": 6}, {"sold": 3}),
        (5, "c", "returned", 6, 3),
        (5, "c", "writes", {"tea": 4, "sold": 6}, {"tea": 7, "sold": 3}),
        (5, None, "value", {"key": "sold", "value": 6, "version": 5},
         {"key": "sold", "value": 3, "version": 5}),
        (5, None, "value", {"key": "tea", "value": 4, "version": 5},
         {"key": "tea", "value": 7, "version": 5}),
    ]  # fmt: skip
    assert (report.same, report.differing, report.calls, report.to_seq) == (False, 2, 3, 5)
    assert report.kinds["verdict"].first == found[0]
    assert (report.kinds["value"].count, report.kinds["emitted"].count) == (2, 0)


def test_the_same_code_makes_no_difference() -> None:
    report, found = asked(history(SALES, SHOP), replaced(SHOP))
    assert (report.same, report.differing, report.calls, found) == (True, 0, 3, [])


def test_a_stretch_begins_and_ends_where_it_is_asked_to() -> None:
    kept = history(SALES, SHOP)
    assert asked(kept, replaced(STRICT), 5)[0].same
    report, found = asked(kept, replaced(STRICT), 2, 4)
    assert (report.from_seq, report.to_seq, report.calls) == (2, 4, 2)
    assert [d.kind for d in found] == ["verdict", "writes", "value", "value"]
    assert asked(kept, replaced(STRICT), 1, 3)[0].same
    assert asked(kept, replaced(STRICT), 6)[0].to_seq == 5
    with pytest.raises(WhatIfError, match="ends at seq 5, and the stretch from 1 to 6"):
        asked(kept, replaced(STRICT), 1, 6)
    with pytest.raises(WhatIfError, match="ends at seq 5, and the stretch from 8 to its end"):
        asked(kept, replaced(STRICT), 8)


def test_a_replacement_stands_for_each_deployed_version_and_for_none_before() -> None:
    more = SHOP + "\ndef gift(db):\n    return db.put('gift', 1)\n"
    gift = record("g", call={"procedure": "shop.gift", "args": {}, "keys": ["gift"]})
    log = [sell("early", 1), deploy(SHOP), gift, deploy(SHOP + "\n"), sell("late", 1)]
    report, found = asked(history(log, SHOP, SHOP + "\n"), replaced(more))
    assert [(d.seq, d.kind) for d in found] == [(3, "verdict"), (3, "writes"), (3, "value")]
    assert report.calls == 2


def test_a_constraint_counts_from_the_stretch_on_and_its_own_keys_are_no_difference() -> None:
    log = [put("a", "acct/1", -5), put("b", "acct/1", -6), put("c", "acct/2", 7)]
    rule = {"name": "positive", "prefix": "acct/", "type": "integer", "min": 0}
    report, found = asked(history(log), rules_of({}, [rule]), 2)
    assert [(d.seq, d.kind) for d in found] == [(2, "verdict"), (2, "writes"), (2, "value")]
    assert json.loads(found[0].after or "")["code"] == "constraint-violated"
    assert json.loads(found[2].after or "") == {"key": "acct/1", "value": -5, "version": 1}
    assert report.kinds["value"].count == 1


def test_a_dropped_constraint_lets_through_what_it_refused() -> None:
    rule = {"name": "positive", "prefix": "acct/", "min": 0}
    log = [record("rule", constrain={"declare": rule}), put("a", "acct/1", -5)]
    kept = history(log)
    assert asked(kept, rules_of({}, drop=["positive"]), 2)[1][0].after == (
        '{"status":"committed","code":null}'
    )
    assert asked(kept, rules_of({}, [rule], ["positive"]), 2)[0].same


@pytest.mark.parametrize(
    ("first", "last", "name", "told"),
    [
        (1, None, "positive", r"before seq 1, .* the log declares it at seq 2\. .*--from-seq 3\)"),
        (2, None, "positive", r"before seq 2, .* the log declares it at seq 2\. .*--from-seq 3\)"),
        (1, 1, "positive", "to drop before seq 1, and none is declared up to seq 1"),
        (3, None, "x", "no constraint 'x' to drop before seq 3, and none is declared up to seq 3"),
    ],
)
def test_a_constraint_that_is_not_there_is_not_dropped_and_where_it_comes_is_told(
    first: int, last: int | None, name: str, told: str
) -> None:
    rule = {"name": "positive", "prefix": "acct/", "min": 0}
    declared = record("rule", constrain={"declare": rule})
    kept = history([put("a", "acct/1", 1), declared, put("b", "acct/1", -5)])
    with pytest.raises(WhatIfError, match=told):
        asked(kept, rules_of({}, drop=[name, name]), first, last)


def test_uniqueness_takes_the_locks_that_clients_would_have_added() -> None:
    log = [put("a", "user/1", {"mail": "x"}), put("b", "user/2", {"mail": "x"}),
           put("c", "user/3", {"mail": "y"})]  # fmt: skip
    rule = {"name": "mail", "prefix": "user/", "unique": "$.mail"}
    report, found = asked(history(log), rules_of({}, [rule]))
    assert [(d.seq, d.kind) for d in found] == [(2, "verdict"), (2, "writes"), (2, "value")]
    assert '"constraint-violated"' in (found[0].after or "")
    assert report.differing == 1


def test_counted_keys_take_the_locks_that_clients_would_have_added() -> None:
    log = [put("a", "user/1", 1), put("b", "user/2", 1), put("c", "user/2", 2)]
    rule = {"name": "few", "prefix": "user/", "keys": {"max": 1}}
    report, found = asked(history(log), rules_of({}, [rule]))
    assert {d.seq for d in found} == {2, 3}
    assert '"constraint-violated"' in (found[0].after or "")
    assert report.differing == 2


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    with pytest.raises(ConfigurationError, match="cannot be read"):
        rules_of({"shop": file})
    file.write_text("import os\n")
    with pytest.raises(ModuleRefused):
        rules_of({"shop": file})
    with pytest.raises(ConfigurationError, match="is no module's name"):
        rules_of({"a-b": file})
    for wanted in (5, {"name": "x"}, {"name": "x", "prefix": "", "min": "1"}):
        with pytest.raises(WhatIfError, match=r"constraint|refused"):
            asked(history([]), rules_of({}, [wanted]))


def voted() -> History:
    log = Log(VOTER)
    for phone, who in enumerate(("ann", "bob", "ann")):
        log.call("voter.vote", [f"phone/{phone}", "$flows/voter"], phone=phone, who=who)
        log.settle()
    log.append(log.records[2])  # a copy of a follow-up is executed by neither
    return history(log.records, modules=log.modules)


def test_a_workflow_goes_on_with_follow_ups_of_its_own() -> None:
    kept = voted()
    assert asked(kept, replaced(VOTER, "voter"))[0].same
    twice = VOTER.replace("{vote['who']}\", 1)", "{vote['who']}\", 2)")
    report, found = asked(kept, replaced(twice, "voter"))
    last = {d.kind: d for d in found}
    assert json.loads(last["emitted"].after or "")[0]["record"] == {"who": "ann", "total": 4}
    values = {json.loads(d.after or "")["key"]: json.loads(d.after or "")["value"]
              for d in found if d.kind == "value"}  # fmt: skip
    assert values == {"votes/ann": 4, "votes/bob": 2, "board": {"ann": 4, "bob": 2}}
    assert report.kinds["verdict"].count == 0
    assert (report.waiting.before, report.waiting.after) == (0, 0)


def test_follow_ups_that_are_not_made_do_not_happen() -> None:
    kept = voted()
    silent = VOTER.replace('    db.emit("counted"', '    if False:\n            db.emit("counted"')
    report, found = asked(kept, replaced(silent, "voter"))
    gone = [d for d in found if d.kind == "verdict"]
    assert gone
    assert all(d.after is None for d in gone)
    assert report.waiting.after == 0
    begun = asked(kept, replaced(VOTER, "voter"), 4)[0]
    assert begun.same, "follow-ups from before the stretch are as they are recorded"


@pytest.mark.parametrize("which", ["a copy", "one that is not made"])
def test_a_key_that_ends_at_a_follow_up_which_is_not_executed_is_told_there(which: str) -> None:
    log = Log(VOTER)
    log.call("voter.vote", ["phone/1", "$flows/voter"], phone=1, who="ann")
    log.append(log.waiting.pop(0))
    log.append(record("ending", updates=[{"op": "put", "key": "x", "value": 1, "ttl_ms": 1}]))
    log.append(log.records[2] if which == "a copy" else log.waiting.pop(0))
    log.append(record("next", updates=[{"op": "put", "key": "y", "value": 1}]))
    kept, ended = history(log.records, modules=log.modules), 5
    if which == "a copy":
        assert asked(kept, replaced(VOTER, "voter"))[0].same
        return
    silent = VOTER.replace('    db.emit("counted"', '    if False:\n            db.emit("counted"')
    found = asked(kept, replaced(silent, "voter"))[1]
    (writes,) = [d for d in found if d.kind == "writes" and d.seq >= ended]
    assert (writes.seq, writes.after) == (ended, '{"x":null}')


def test_all_differences_go_into_a_file_that_is_whole_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "found.parquet"
    with DifferencesFile(path) as file:
        whatif(history(SALES, SHOP), replaced(STRICT), Stretch(), file.keep)
    table = pq.read_table(path)
    assert table.schema.equals(SCHEMA)
    assert table.column("seq").to_pylist() == [4, 4, 5, 5, 5, 5, 5]
    assert table.column("after").to_pylist()[0] == '{"status":"aborted","code":"procedure-aborted"}'
    with pytest.raises(ZeroDivisionError), DifferencesFile(tmp_path / "none") as file:
        raise ZeroDivisionError
    assert [each.name for each in tmp_path.iterdir()] == ["found.parquet"]
    with pytest.raises(WhatIfError, match="cannot be written"):
        DifferencesFile(tmp_path / "no" / "x")
