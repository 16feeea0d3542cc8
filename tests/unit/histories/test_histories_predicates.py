"""Anomalies over ranges: histories by hand that have them are caught, and sound ones are not."""

from __future__ import annotations

from histories import Answer, AppendOperation, Seen
from tests.support.histories import Cases, Script

CASES = Cases()
bad, good = CASES.bad, CASES.good


@bad("G2-predicate")
def predicate_write_skew(s: Script) -> None:
    s.txn(0, 10, {"p/1": 1}, {}, before={"p/": {}})
    s.txn(0, 10, {"p/2": 2}, {}, before={"p/": {}})


@bad("G2-predicate")
def predicate_write_skew_of_scans(s: Script) -> None:
    s.txn(0, 10, {"p/1": 1}, {}, scans={"q/": {}})
    s.txn(0, 10, {"q/1": 1}, {}, scans={"p/": {}})


@bad("G-single-predicate")
def a_phantom(s: Script) -> None:
    s.txn(0, 10, {"p/1": 1, "x": 1}, {})
    s.txn(0, 10, {}, {"x": [1]}, scans={"p/": {}})


@bad("G-single-predicate-realtime")
def a_range_without_what_was_made_before(s: Script) -> None:
    s.txn(0, 1, {"p/1": 1}, {})
    s.txn(2, 3, {}, {}, scans={"p/": {}})


@bad("G-single-predicate-realtime")
def a_check_of_a_range_that_had_changed(s: Script) -> None:
    s.txn(0, 1, {"p/1": 1}, {})
    s.txn(2, 3, {"x": 1}, {}, before={"p/": {}})


@bad("G2")
def write_skew_of_removals(s: Script) -> None:
    s.txn(0, 1, {"p/1": 1, "q/1": 1}, {})
    s.txn(2, 10, {}, {}, removes=["p/1"], before={"q/": {"q/1": [1]}})
    s.txn(2, 10, {}, {}, removes=["q/1"], before={"p/": {"p/1": [1]}})


@bad("G-single-realtime")
def a_removed_key_that_is_in_a_range(s: Script) -> None:
    s.txn(0, 1, {"p/1": 1}, {})
    s.txn(2, 3, {}, {}, removes=["p/1"])
    s.txn(4, 5, {}, {}, scans={"p/": {"p/1": [1]}})


@bad("G-single-realtime")
def a_key_that_comes_back(s: Script) -> None:
    s.txn(0, 1, {"p/1": 1}, {})
    s.txn(2, None, {}, {}, removes=["p/1"])
    s.txn(4, 5, {}, {}, scans={"p/": {}})
    s.read(6, 7, {"p/1": [1]})


@bad("lost-update")
def two_removals_of_one_key(s: Script) -> None:
    s.txn(0, 1, {"p/1": 1}, {})
    s.txn(2, 10, {}, {}, removes=["p/1"])
    s.txn(2, 10, {}, {}, removes=["p/1"])


@bad("G1a")
def a_removal_that_was_refused(s: Script) -> None:
    s.txn(0, 1, {"p/1": 1}, {}, outcome="failed")
    s.txn(2, 3, {}, {}, removes=["p/1"])


@bad("internal")
def a_scan_without_its_own_key(s: Script) -> None:
    s.txn(0, 1, {"p/1": 1}, {}, scans={"p/": {}})


@bad("too-many-keys")
def a_range_with_more_keys_than_it_may_have(s: Script) -> None:
    s.txn(0, 10, {"p/1": 1}, {}, most={"p/": 1})
    s.txn(0, 10, {"p/2": 1}, {}, most={"p/": 1})
    s.txn(0, 10, {"p/3": 1}, {}, most={"p/": 1}, scans={"p/": {f"p/{n}": [1] for n in (1, 2, 3)}})


@good
def ranges_one_after_the_other(s: Script) -> None:
    s.txn(0, 1, {"p/1": 1}, {}, before={"p/": {}}, most={"p/": 1})
    s.txn(2, 3, {"p/2": 2}, {}, scans={"p/": {"p/1": [1], "p/2": [2]}}, most={"p/": 1})
    s.txn(4, 5, {"p/3": 3}, {}, removes=["p/1"], scans={"p/": {"p/2": [2], "p/3": [3]}})
    s.txn(6, 7, {}, {}, before={"p/": {"p/2": [2], "p/3": [3]}}, scans={"p/": {"p/2": [2]}},
          removes=["p/3"])  # fmt: skip
    s.read(8, 9, {"p/1": None, "p/2": [2], "p/3": None})


@good
def an_absent_key_was_not_made_yet_or_is_gone(s: Script) -> None:
    s.txn(0, 10, {"p/1": 1}, {})
    s.txn(5, None, {}, {}, removes=["p/1"])
    s.txn(6, 7, {}, {}, scans={"p/": {}})
    s.txn(8, 12, {}, {}, scans={"p/": {"p/1": [1]}})
    s.txn(20, 21, {}, {}, scans={"p/": {}})
    s.read(22, 23, {"p/1": [1]}, "snapshot")


@bad("snapshot-torn")
def a_range_without_a_key_before_it(s: Script) -> None:
    s.add(0, 1, AppendOperation("t", {"x": [1]}, ["x"]), Answer(seq=3, seen={"x": Seen([1])}))
    s.add(2, 3, AppendOperation("u", scans=["x"]), Answer(seq=4, ranges={"x": {}}))


@bad("snapshot-torn")
def a_range_with_a_key_that_was_removed(s: Script) -> None:
    s.add(0, 1, AppendOperation("t", removes=["x"]), Answer(seq=3))
    s.add(2, 3, AppendOperation("u", scans=["x"]), Answer(seq=4, ranges={"x": {"x": Seen(1, 2)}}))


test_an_anomaly_is_caught, test_its_sound_twin_is_not = CASES.tests()


def test_a_phantom_is_told_with_its_range() -> None:
    script = Script()
    a_phantom(script)
    (found,) = script.check().violations["strict serializability"]
    scan = 'transaction read-only reads ["x"] scans p/*: ok, saw x = [1]; p/*: nothing'
    assert scan in found.message
    why = "↓ prw: #0 appended 1 to p/1, a key that was not in the range when scanned"
    assert why in found.message
