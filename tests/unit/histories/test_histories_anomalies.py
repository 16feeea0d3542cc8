"""Every anomaly by name: a history by hand that has it is caught, and its sound twin is not."""

from __future__ import annotations

from histories import (
    Answer,
    AppendOperation,
    Delivered,
    Delivery,
    Get,
    ScanOperation,
    Seen,
    WatchOperation,
    WriteOperation,
)
from tests.support.histories import Cases, Script

CASES = Cases()
bad, good = CASES.bad, CASES.good


@bad("not-linearizable")
def stale_read(s: Script) -> None:
    s.put(0, 1, "a")
    s.put(2, 3, "b")
    s.get(4, 5, "a")


@bad("not-linearizable")
def lost_write(s: Script) -> None:
    s.put(0, 1, "a")
    s.get(2, 3, None)


@bad("not-linearizable")
def reads_that_go_back(s: Script) -> None:
    s.put(0, 1, "a")
    s.put(2, 20, "b")
    s.get(3, 5, "b")
    s.get(6, 8, "a")


@bad("not-linearizable")
def a_write_that_failed_and_shows(s: Script) -> None:
    s.put(0, 1, "a", outcome="failed")
    s.get(2, 3, "a")


@bad("not-linearizable")
def an_unknown_write_that_comes_and_goes(s: Script) -> None:
    s.put(0, 1, "a")
    s.put(2, None, "b")
    s.get(3, 4, "b")
    s.get(5, 6, "a")


@bad("not-linearizable")
def two_swaps_from_one_value(s: Script) -> None:
    s.put(0, 1, "a")
    s.swap(2, 10, "a", "b")
    s.swap(3, 11, "a", "c")


@bad("not-linearizable")
def a_refusal_without_a_reason(s: Script) -> None:
    s.put(0, 1, "a")
    s.swap(2, 3, "a", "b", done=False)


@bad("not-linearizable")
def an_old_delete_comes_back(s: Script) -> None:
    s.put(0, 1, "a")
    s.put(2, 3, None)
    s.get(4, 5, "a")


@good
def unknown_writes_explain_much(s: Script) -> None:
    s.put(0, 1, "a")
    s.put(2, None, "b")
    s.swap(3, None, "b", "c")
    s.swap(4, 5, "a", "d", done=False)
    s.get(20, 21, "c")
    s.put(22, None, None)
    s.get(23, 24, "c")
    s.get(25, 26, None)


@good
def concurrent_reads_may_see_either(s: Script) -> None:
    s.put(0, 1, "a")
    s.put(2, 20, "b")
    s.get(3, 5, "a")
    s.get(4, 8, "b")
    s.get(9, 12, "b")


@bad("G0")
def writes_in_two_orders(s: Script) -> None:
    s.txn(0, 100, {"x": 1, "y": 1}, {})
    s.txn(0, 100, {"x": 2, "y": 2}, {})
    s.read(200, 201, {"x": [1, 2], "y": [2, 1]})


@bad("G1a")
def a_read_of_what_was_refused(s: Script) -> None:
    s.txn(0, 1, {"x": 1}, {}, outcome="failed")
    s.read(2, 3, {"x": [1]})


@bad("G1b")
def a_read_within_a_transaction(s: Script) -> None:
    s.txn(0, 10, {"x": [1, 2]}, {})
    s.read(5, 6, {"x": [1]})
    s.read(20, 21, {"x": [1, 2]})


@bad("G1c")
def each_reads_from_the_other(s: Script) -> None:
    s.txn(0, 10, {"x": 1}, {"y": [2]})
    s.txn(0, 10, {"y": 2}, {"x": [1]})


@bad("G-single")
def a_torn_snapshot(s: Script) -> None:
    s.txn(0, 100, {"x": 1, "y": 1}, {})
    s.read(0, 100, {"x": [1], "y": []})
    s.read(200, 201, {"x": [1], "y": [1]})


@bad("G-single")
def a_torn_snapshot_that_may_be_old(s: Script) -> None:
    s.txn(0, 1, {"x": 1, "y": 1}, {})
    s.read(5, 6, {"x": [1], "y": []}, "snapshot")
    s.read(7, 8, {"x": [1], "y": [1]})


@bad("G2")
def write_skew(s: Script) -> None:
    s.txn(0, 10, {"x": 1}, {"y": None})
    s.txn(0, 10, {"y": 1}, {"x": None})
    s.read(20, 21, {"x": [1], "y": [1]})


@bad("G2")
def two_reads_disagree_on_the_order(s: Script) -> None:
    s.txn(0, 100, {"x": 1}, {})
    s.txn(0, 100, {"y": 1}, {})
    s.read(0, 100, {"x": [1], "y": None})
    s.read(0, 100, {"x": None, "y": [1]})


@bad("lost-update")
def two_appends_to_one_list(s: Script) -> None:
    s.txn(0, 1, {"x": 1}, {"x": [1]})
    s.txn(2, 10, {"x": 2}, {"x": [1, 2]})
    s.txn(3, 11, {"x": 3}, {"x": [1, 3]})


@bad("G-single-realtime")
def a_committed_append_that_is_gone(s: Script) -> None:
    s.txn(0, 1, {"x": 1}, {})
    s.read(2, 3, {"x": None})


@bad("G0-realtime")
def writes_against_real_time(s: Script) -> None:
    s.txn(0, 1, {"x": 1}, {})
    s.txn(2, 3, {"x": 2}, {})
    s.read(4, 5, {"x": [2, 1]})


@bad("G1c-realtime")
def a_read_from_the_future(s: Script) -> None:
    s.read(0, 1, {"x": [1]}, "snapshot")
    s.txn(2, 3, {"x": 1}, {})


@bad("G-single-session")
def a_session_that_goes_back(s: Script) -> None:
    s.add(0, 1, AppendOperation("t", {"x": [1]}), Answer(seq=7), client=1)
    s.read(2, 3, {"x": None}, "session", 7, client=1)
    s.read(4, 5, {"x": [1]})


@bad("duplicate-element")
def an_append_that_was_made_twice(s: Script) -> None:
    s.txn(0, 1, {"x": 1}, {})
    s.read(2, 3, {"x": [1, 1]})


@bad("phantom-element")
def an_element_that_nobody_appended(s: Script) -> None:
    s.txn(0, 1, {"x": 1}, {})
    s.read(2, 3, {"x": [1, 9]})


@bad("internal")
def a_transaction_that_misses_its_own_write(s: Script) -> None:
    s.txn(0, 1, {"x": 1}, {"x": None})


@bad("incompatible-order")
def lists_that_do_not_agree(s: Script) -> None:
    s.txn(0, None, {"x": 1}, {})
    s.read(2, 3, {"x": [1, 7]})
    s.read(2, 3, {"x": [8, 1, 7]})


@good
def an_unknown_append_may_come_late_or_never(s: Script) -> None:
    s.txn(0, None, {"x": 1}, {})
    s.txn(1, None, {"x": 2}, {})
    s.read(2, 3, {"x": None})
    s.read(4, 5, {"x": [1]})
    s.read(4, 9, {"x": None}, "snapshot")


@good
def a_snapshot_read_may_be_old(s: Script) -> None:
    s.txn(0, 1, {"x": 1, "y": 1}, {})
    s.txn(2, 3, {"x": 2, "y": 2}, {"x": [1, 2]})
    s.read(4, 5, {"x": [1], "y": [1]}, "snapshot")


def get(s: Script, at: int, seq: int, seen: Seen, kind: str = "snapshot", **more: int) -> None:
    request = Get("x", kind, more.get("min_version"))  # type: ignore[arg-type]
    s.add(at, at + 1, request, Answer(seq=seq, seen={"x": seen}), client=1)


@bad("min-version")
def a_read_below_what_it_asked_for(s: Script) -> None:
    get(s, 0, 5, Seen(None, 0), "session", min_version=6)


@bad("monotonic-reads")
def a_session_that_saw_more(s: Script) -> None:
    get(s, 0, 9, Seen(None, 0))
    get(s, 2, 8, Seen(None, 0), "session", min_version=7)


@bad("read-your-writes")
def a_session_that_wrote_more(s: Script) -> None:
    s.add(0, 1, WriteOperation("w", "x", "a"), Answer(seq=9), client=1)
    get(s, 2, 8, Seen(None, 0), "session", min_version=7)


@bad("seq-against-real-time")
def a_later_write_with_a_smaller_seq(s: Script) -> None:
    s.put(0, 1, "a", answer=Answer(seq=5))
    s.put(2, 3, "b", answer=Answer(seq=4))


@bad("seq-against-real-time")
def a_strong_read_of_an_old_snapshot(s: Script) -> None:
    s.put(0, 1, "a", answer=Answer(seq=5))
    get(s, 2, 4, Seen(None, 0), "strong")


@bad("seq-reused")
def two_verdicts_with_one_seq(s: Script) -> None:
    s.put(0, 5, "a", answer=Answer(seq=5))
    s.put(1, 6, "b", answer=Answer(seq=5))


@bad("version-reused")
def one_version_with_two_values(s: Script) -> None:
    get(s, 0, 5, Seen("a", 4))
    get(s, 2, 5, Seen("b", 4))


@bad("snapshot-ahead")
def a_version_above_the_snapshot(s: Script) -> None:
    get(s, 0, 5, Seen("a", 6))


@bad("snapshot-torn")
def a_snapshot_without_a_write_before_it(s: Script) -> None:
    s.put(0, 1, "a", answer=Answer(seq=3))
    s.put(2, 3, "b", answer=Answer(seq=5))
    get(s, 4, 6, Seen("a", 3))


@bad("snapshot-torn")
def a_snapshot_with_a_deleted_key(s: Script) -> None:
    s.put(0, 1, "a", answer=Answer(seq=3))
    s.put(2, 3, None, answer=Answer(seq=5))
    get(s, 4, 6, Seen("a", 3))


def scan(s: Script, *pages: tuple[int, list[str]]) -> None:
    s.add(0, 1, ScanOperation("k", 2, "snapshot"), Answer(seq=pages[0][0], pages=list(pages)))


@bad("torn-scan")
def pages_of_two_snapshots(s: Script) -> None:
    scan(s, (1, ["k1", "k2"]), (2, ["k3"]))


@bad("scan-order")
def pages_that_overlap(s: Script) -> None:
    scan(s, (1, ["k1", "k2"]), (1, ["k2"]))


@bad("scan-range")
def a_page_with_another_prefix(s: Script) -> None:
    scan(s, (1, ["j", "k2"]))


@bad("scan-limit")
def a_page_that_is_too_long(s: Script) -> None:
    scan(s, (1, ["k1", "k2", "k3"]))


@bad("snapshot-torn")
def a_scan_that_skips_a_key(s: Script) -> None:
    s.add(0, 1, WriteOperation("w", "k1", "a"), Answer(seq=3))
    s.add(2, 3, ScanOperation("k", 2), Answer(seq=4, pages=[(4, [])]))


@bad("not-linearizable")
def a_strong_scan_that_skips_a_key(s: Script) -> None:
    s.add(0, 1, WriteOperation("w", "k1", "a"))
    s.add(2, 3, ScanOperation("k", 2), Answer(pages=[(4, [])]))


@good
def a_scan_of_three_pages(s: Script) -> None:
    scan(s, (1, ["k1", "k2"]), (1, ["k3", "k4"]), (1, []))


Batch = tuple[int, list[tuple[str, object, object]]]


def watch(s: Script, *deliveries: Batch) -> None:
    s.add(0, 1, AppendOperation("t1", {"x": [1], "y": [1]}), Answer(seq=1))
    s.add(2, 3, AppendOperation("t2", {"x": [2]}), Answer(seq=2))
    s.lines.append(WatchOperation(watcher=1, prefix="", since=0, began_ns=0))
    for seq, changes in deliveries:
        made = [Delivered(*change) for change in changes]
        s.lines.append(Delivery(watcher=1, seq=seq, received_ns=9, connection=1, changes=made))


FIRST: Batch = (1, [("x", None, [1]), ("y", None, [1])])
SECOND: Batch = (2, [("x", [1], [1, 2])])


@good
def a_watch_with_everything(s: Script) -> None:
    watch(s, FIRST, SECOND, (9, []))


@bad("watch-gap")
def a_change_twice(s: Script) -> None:
    watch(s, FIRST, SECOND, (3, SECOND[1]))


@bad("watch-gap")
def changes_exchanged(s: Script) -> None:
    watch(s, (1, SECOND[1]), (2, FIRST[1]))


@bad("watch-order")
def an_id_twice(s: Script) -> None:
    watch(s, FIRST, SECOND, (2, []))


@bad("watch-lost")
def a_change_that_never_came(s: Script) -> None:
    watch(s, FIRST, (9, []))


@bad("watch-torn")
def a_transaction_in_two_pieces(s: Script) -> None:
    watch(s, (1, FIRST[1][:1]), (2, FIRST[1][1:]), (3, SECOND[1]))


@bad("watch-phantom")
def a_change_of_what_was_not_executed(s: Script) -> None:
    s.add(0, 1, WriteOperation("w", "z", "v"), outcome="failed")
    watch(s, FIRST, SECOND, (3, [("z", None, "v")]))


test_an_anomaly_is_caught, test_its_sound_twin_is_not = CASES.tests()


def test_a_cycle_is_told_step_by_step() -> None:
    script = Script()
    write_skew(script)
    (found,) = script.check().violations["strict serializability"]
    assert found.anomaly == "G2"
    assert set(found.operations) == {0, 1}
    assert "client 0" in found.message
    assert "↓ rw: #1 appended 1 to y, which was not there when read" in found.message
    assert "[G2] each of these must come before the next" in script.check().text()
