"""Keys that end at a wrong time: histories by hand that have it are caught, and sound ones not."""

from __future__ import annotations

from typing import Any

from histories import Seen
from tests.support.histories import Cases, Script

CASES = Cases()
bad, good = CASES.bad, CASES.good


def made(s: Script, key: str = "p/1", ttl_ms: int = 10) -> None:
    """At seq 1 and 100 ms, make a key that ends after so long."""
    s.txn(0, 1, {key: 1}, {}, ttls={key: ttl_ms}, at=(1, 100))


@bad("there-after-its-end")
def a_transaction_that_sees_what_has_ended(s: Script) -> None:
    made(s)
    s.txn(2, 3, {}, {}, scans={"p/": {"p/1": [1]}}, at=(2, 110))


@bad("there-after-its-end")
def a_check_that_holds_for_what_has_ended(s: Script) -> None:
    made(s)
    s.txn(2, 3, {"x": 1}, {}, before={"p/": {"p/1": [1]}}, at=(2, 110))


@bad("there-after-its-end")
def a_removal_of_what_has_ended(s: Script) -> None:
    made(s)
    s.txn(2, 3, {}, {}, removes=["p/1"], at=(2, 110))


@bad("there-after-its-end")
def a_touch_of_what_has_ended(s: Script) -> None:
    made(s)
    s.txn(2, 3, {}, {}, touches=["p/1"], ttls={"p/1": 10}, at=(2, 110))


@bad("there-after-its-end")
def a_scan_that_sees_what_has_ended(s: Script) -> None:
    made(s)
    s.txn(2, 3, {"x": 1}, {}, at=(2, 110))
    s.scan(4, 5, 2, "p/", {"p/1": Seen([1], 1, 110)})


@bad("gone-before-its-end")
def a_transaction_that_misses_what_is_there(s: Script) -> None:
    made(s)
    s.txn(2, 3, {}, {}, scans={"p/": {}}, at=(2, 109))


@bad("gone-before-its-end")
def a_scan_that_misses_what_is_there(s: Script) -> None:
    made(s)
    s.scan(4, 5, 2, "p/", {})
    s.txn(6, 7, {"x": 1}, {}, at=(2, 109))


@bad("gone-before-its-end")
def a_touch_that_is_forgotten(s: Script) -> None:
    made(s)
    s.txn(2, 3, {}, {}, touches=["p/1"], ttls={"p/1": 50}, at=(2, 105))
    s.txn(4, 5, {}, {}, scans={"p/": {}}, at=(3, 120))


@bad("end-differs")
def an_end_that_is_told_wrongly(s: Script) -> None:
    made(s)
    s.scan(2, 3, 1, "p/", {"p/1": Seen([1], 1, 111)})


@bad("end-differs")
def an_end_that_is_not_told(s: Script) -> None:
    made(s)
    s.scan(2, 3, 1, "p/", {"p/1": Seen([1], 1)})


@bad("commit-time-back")
def time_that_goes_back(s: Script) -> None:
    s.txn(0, 1, {"x": 1}, {}, at=(1, 100))
    s.txn(2, 3, {"x": 2}, {}, at=(2, 99))


@bad("end-told-early")
def a_watcher_told_before_the_end(s: Script) -> None:
    made(s)
    s.txn(2, 3, {"x": 1}, {}, at=(2, 109))
    s.watched((1, "p/1", None, [1]), (2, "p/1", [1], None))


@bad("end-told-late")
def a_watcher_told_behind_the_end(s: Script) -> None:
    made(s)
    s.txn(2, 3, {"x": 1}, {}, at=(2, 110))
    s.txn(4, 5, {"y": 1}, {}, at=(3, 110))
    s.watched((1, "p/1", None, [1]), (3, "p/1", [1], None))


@bad("end-not-told")
def a_watcher_told_nothing(s: Script) -> None:
    made(s)
    s.txn(2, 3, {"x": 1}, {}, at=(2, 110))
    s.watched((1, "p/1", None, [1]), (2, "x", None, [1]))


@bad("watch-gap")
def a_watcher_told_twice(s: Script) -> None:
    made(s)
    s.txn(2, 3, {"x": 1}, {}, at=(2, 110))
    s.watched((1, "p/1", None, [1]), (2, "p/1", [1], None), (3, "p/1", [1], None))


@bad("G-single-realtime")
def a_key_that_comes_back_after_its_end(s: Script) -> None:
    s.txn(0, 1, {"p/1": 1}, {}, ttls={"p/1": 10})
    s.txn(2, 3, {}, {}, scans={"p/": {}})
    s.read(4, 5, {"p/1": [1]})


@bad("G2")
def an_end_before_one_and_behind_another(s: Script) -> None:
    s.txn(0, 1, {"p/1": 1, "q/1": 1}, {}, ttls={"p/1": 10, "q/1": 10})
    s.txn(2, 9, {}, {}, scans={"p/": {}, "q/": {"q/1": [1]}})
    s.txn(2, 9, {}, {}, scans={"p/": {"p/1": [1]}, "q/": {}})


@good
def keys_that_end_in_time(s: Script) -> None:
    made(s)
    s.scan(2, 3, 1, "p/", {"p/1": Seen([1], 1, 110)})
    s.txn(4, 5, {}, {}, scans={"p/": {"p/1": [1]}}, at=(2, 109))
    s.txn(6, 7, {"x": 1}, {}, before={"p/": {}}, scans={"p/": {}}, at=(3, 110))
    s.scan(8, 9, 3, "p/", {})
    s.watched((1, "p/1", None, [1]), (3, "x", None, [1]), (3, "p/1", [1], None))


@good
def a_touched_key_ends_later(s: Script) -> None:
    made(s)
    s.txn(2, 3, {}, {}, touches=["p/1"], ttls={"p/1": 50}, at=(2, 105))
    s.txn(4, 5, {}, {}, scans={"p/": {"p/1": [1]}}, at=(3, 154))
    s.scan(6, 7, 3, "p/", {"p/1": Seen([1], 2, 155)})
    s.txn(8, 9, {}, {}, scans={"p/": {}}, at=(4, 155))
    s.watched((1, "p/1", None, [1]), (2, "p/1", [1], [1]), (4, "p/1", [1], None))


@good
def what_nobody_was_told_may_have_given_another_end(s: Script) -> None:
    made(s)
    s.txn(2, None, {}, {}, touches=["p/1"], ttls={"p/1": 50})
    s.txn(4, 5, {}, {}, scans={"p/": {"p/1": [1]}}, at=(3, 120))


@good
def a_touch_that_was_refused_gives_none(s: Script) -> None:
    made(s)
    s.txn(2, 3, {}, {}, touches=["p/1"], ttls={"p/1": 50}, outcome="failed")
    s.txn(4, 5, {}, {}, scans={"p/": {}}, at=(3, 120))


@good
def a_key_that_was_removed_before_its_end(s: Script) -> None:
    made(s)
    s.txn(2, 3, {}, {}, removes=["p/1"], at=(2, 105))
    s.txn(4, 5, {}, {}, scans={"p/": {}}, at=(3, 106))
    s.watched((1, "p/1", None, [1]), (2, "p/1", [1], None))


@good
def ends_of_functions_are_known_by_what_reads_tell(s: Script) -> None:
    s.txn(0, 1, {"p/1": 1}, {}, ttls={"p/1": 10}, at=(1, None))  # type: ignore[arg-type]
    s.scan(2, 3, 1, "p/", {"p/1": Seen([1], 1, 110)})
    s.txn(4, 5, {}, {}, scans={"p/": {}}, at=(2, 110))


test_an_anomaly_is_caught, test_its_sound_twin_is_not = CASES.tests()


def test_an_end_is_told_as_what_it_is() -> None:
    script = Script()
    a_key_that_comes_back_after_its_end(script)
    found: Any = script.check().violations["strict serializability"]
    assert "the end of p/1" in found[0].message
    assert "client" not in next(line for line in found[0].message.split("\n") if "the end" in line)
