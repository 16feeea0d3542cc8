"""A read model: what a user sees, and what is refused."""

from __future__ import annotations

from itertools import count
from typing import Any, cast

import numpy as np
import pytest

from streamydb.errors import InvariantViolation, RecordError, StreamyError, ValueRejected
from streamydb.read_model import (
    ChangesExpiredError,
    Entry,
    ReadModel,
    ReadModelError,
    ResolvedPoint,
    SnapshotAhead,
    SnapshotGone,
    SourceError,
    StoreBusyError,
    Version,
)
from streamydb.read_model import snapshot as snapshots
from streamydb.read_model.scanning import advanced
from streamydb.records import Resolved as ResolvedRecord
from streamydb.records import encode_resolved
from streamydb.records.ranges import ScanRange
from tests.support.memory_topic import MemoryTopic
from tests.support.read_model import change, follow, nothing_superfluous, resolve, rows_in, write
from tests.support.strange import LATER, STRANGE


def test_every_seq_of_the_past_can_be_read(model: ReadModel, topic: MemoryTopic) -> None:
    follow(model, topic)
    assert model.latest() == ResolvedPoint(5, 50, {0: 6})
    assert model.oldest() == 0
    expected: list[list[Entry]] = [
        [],
        [Entry("a", b"1", 1, 10)],
        [Entry("a", b"1", 1, 10), Entry("b", b'"two"', 2, 20)],
        [Entry("b", b'"two"', 2, 20)],
        [Entry("b", b"[4]", 4, 40)],
        [Entry("b", b"[4]", 4, 40)],
    ]
    for seq, entries in enumerate(expected):
        with model.snapshot(seq) as snapshot:
            assert snapshot.seq == seq
            assert snapshot.ts_ms == 10 * seq
            assert snapshot.scan() == entries
            assert [e for e in snapshot.get_many(["b", "a", "x"]) if e] == entries[::-1]
    for odd in (True, 1.5, "1"):
        with pytest.raises(TypeError, match="a whole number, not at"):
            model.snapshot(cast("int", odd))
    with model.snapshot(cast("int", np.int64(2))) as snapshot:  # of a DataFrame
        assert type(snapshot.seq) is int
    with model.snapshot() as snapshot:
        assert snapshot.seq == 5
        assert snapshot.history("a") == [Version(3, 30, None, "id3"), Version(1, 10, b"1", "id1")]
        assert snapshot.history("b", limit=1) == [Version(4, 40, b"[4]", "id4")]
        assert snapshot.history("c") == snapshot.history("a", limit=0) == []


def test_reads_tell_the_end_of_a_key(model: ReadModel) -> None:
    topic = MemoryTopic(1)
    for seq, value, end in [(1, "1", 500), (2, "2", None), (3, "3", 900), (4, None, None)]:
        topic.append(0, b"k", change(seq, value, expires_ms=end))
    topic.append(0, b"\xc3\xa9", change(3, "3", expires_ms=7))
    resolve(topic, 4)
    follow(model, topic)
    ends = {1: 500, 2: None, 3: 900}
    for seq, end in ends.items():
        entry = Entry("k", b"%d" % seq, seq, 10 * seq, end)
        with model.snapshot(seq) as snapshot:
            assert snapshot.get("k") == snapshot.get_many(["k"])[0] == snapshot.scan()[0] == entry
            told = b'{"key":"k","value":%d,"version":%d,"ts_ms":%d' % (seq, seq, 10 * seq)
            told += b"}" if end is None else b',"expires_ms":%d}' % end
            assert snapshot.get_json(["k"], 100) == b'"k":' + told
            assert snapshot.scan_json(limit=1, bytes_max=100).items == told
    with model.snapshot() as snapshot:
        assert snapshot.scan() == [Entry("é", b"3", 3, 30, 7)]
        assert [line.expires_ms for line in snapshot.history("k")] == [None, 900, None, 500]


def test_a_repetition_with_another_end_is_found(model: ReadModel) -> None:
    topic = MemoryTopic(1)
    topic.append(0, b"k", change(1, "1", expires_ms=500))
    resolve(topic, 1)
    topic.append(0, b"k", change(1, "1"))
    with pytest.raises(InvariantViolation, match="another change"):
        follow(model, topic)


def test_times_name_seqs(model: ReadModel, topic: MemoryTopic) -> None:
    assert model.seq_at(0) == model.seq_at(99) == 0
    follow(model, topic)
    asked = [-1, 0, 9, 10, 19, 20, 30, 39, 40, 49, 50, 10**15]
    assert [model.seq_at(ts) for ts in asked] == [0, 0, 0, 1, 1, 2, 3, 3, 4, 4, 5, 5]


def test_an_empty_read_model_is_an_empty_database(model: ReadModel) -> None:
    assert model.latest() == ResolvedPoint(0, 0, {})
    with model.snapshot() as snapshot:
        assert (snapshot.seq, snapshot.ts_ms, snapshot.scan()) == (0, 0, [])
    with pytest.raises(SnapshotAhead) as caught:
        model.snapshot(1)
    assert caught.value.latest == 0


def test_changes_are_held_back_until_every_partition_has_resolved_them(model: ReadModel) -> None:
    topic = MemoryTopic(3)
    write(topic, 0, 1, "a", "1")
    resolve(topic, 1, [0, 1])
    follower = follow(model, topic)
    assert model.latest().seq == 0, "partition 2 has said nothing"
    with model.snapshot() as snapshot:
        assert snapshot.get("a") is None
    resolve(topic, 1, [2])
    write(topic, 0, 2, "a", "2")
    resolve(topic, 7, [0, 2])
    follower.step(0)
    assert (model.latest().seq, model.newest()) == (1, 2)
    with model.snapshot() as snapshot:
        assert snapshot.get("a") == Entry("a", b"1", 1, 10)
    with pytest.raises(SnapshotAhead, match="seq 2 is not resolved"):
        model.snapshot(2)
    resolve(topic, 6, [1])
    follower.step(0)
    assert (model.latest().seq, model.newest()) == (6, 6)


def test_resolved_offsets_grow_and_never_go_back(model: ReadModel) -> None:
    topic = MemoryTopic(2)
    for partition, seq, offsets in [
        (0, 3, {"0": 4}), (1, 3, {"0": 4}), (0, 3, {"0": 9, "1": 2}), (0, 2, {"0": 1}),
    ]:  # fmt: skip
        topic.append(partition, None, encode_resolved(ResolvedRecord(seq, 30, offsets)))
    follower = follow(model, topic)
    assert model.latest() == ResolvedPoint(3, 30, {0: 4}), "what all partitions have said"
    topic.append(1, None, encode_resolved(ResolvedRecord(3, 30, {"0": 8, "1": 3})))
    follower.step(0)
    assert model.latest() == ResolvedPoint(3, 30, {0: 8, 1: 2})


def test_collected_snapshots_are_refused_and_say_what_is_left(
    model: ReadModel, topic: MemoryTopic
) -> None:
    follow(model, topic, retention_s=0, retention_seqs=2)
    assert model.oldest() == 3
    for refused in (lambda: model.snapshot(2), lambda: model.seq_at(29)):
        with pytest.raises(SnapshotGone, match="the oldest that is kept is seq 3") as caught:
            refused()
        assert caught.value.oldest == 3
    assert model.seq_at(30) == 3
    with model.snapshot(3) as snapshot:
        assert snapshot.scan() == [Entry("b", b'"two"', 2, 20)]
        assert snapshot.history("a") == [], "the deletion at the oldest seq says nothing"
    with model.snapshot(5) as snapshot:
        assert [line.version for line in snapshot.history("b")] == [4, 2]


def test_a_snapshot_stays_as_it_is_while_its_versions_are_collected(
    model: ReadModel, topic: MemoryTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing_superfluous(monkeypatch)
    follow(model, topic).close()
    with model.snapshot(2) as snapshot:
        before = snapshot.digest()
        write(topic, 1, 6, "b", "6")
        resolve(topic, 6)
        follow(model, topic, retention_s=0)
        assert model.oldest() == 6
        assert snapshot.digest() == before
        assert len(snapshot.scan()) == 2
    assert len(rows_in(model)) == 1


@pytest.mark.fault(23, "a deleted key whose tombstone is collected", "it never comes back")
def test_a_deleted_and_collected_key_never_comes_back(
    model: ReadModel, topic: MemoryTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing_superfluous(monkeypatch)
    follower = follow(model, topic, retention_s=0)
    assert len(rows_in(model)) == 1
    write(topic, 0, 1, "a", "1")
    write(topic, 1, 2, "b", '"two"')
    resolve(topic, 2)
    write(topic, 1, 4, "b", "[4]")
    while follower.step(0):
        pass
    assert len(rows_in(model)) == 1
    with model.snapshot() as snapshot:
        assert snapshot.scan() == [Entry("b", b"[4]", 4, 40)]


@pytest.mark.parametrize(
    ("seq", "key", "value"), [(3, "new", "1"), (4, "b", "[5]"), (9, "late", "2")]
)
def test_a_contradiction_stops_loudly_and_commits_nothing(
    model: ReadModel, topic: MemoryTopic, seq: int, key: str, value: str
) -> None:
    """A change that comes first after its resolved record, or differs from what came before."""
    write(topic, 1, 9, "late", "1")
    follower = follow(model, topic)
    progress = model.store.progress()
    write(topic, 1, 10, "unseen", "1")
    write(topic, 1, seq, key, value)
    resolve(topic, 10)
    for _ in range(2):
        with pytest.raises(InvariantViolation):
            follower.step(0)
    assert model.store.progress() == progress
    assert model.latest().seq == 5
    with model.snapshot() as snapshot:
        assert snapshot.get("unseen") is None


def test_two_different_changes_with_one_name_in_one_batch(model: ReadModel) -> None:
    topic = MemoryTopic(1)
    write(topic, 0, 1, "a", "1")
    write(topic, 0, 1, "a", "2")
    with pytest.raises(InvariantViolation, match="two different changes of b'a' have seq 1"):
        follow(model, topic)


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        (b"a", LATER[0], "missing required field `op`"),
        (b"a", change(1, "1")[:-1] + b',"op":7}', "Expected `str`"),
        (None, LATER[1], "format 2"),
        (b"\xff", change(1, "1"), "decode"),
        (b"k" * 481, change(1, "1"), "limits"),
        (b"", change(1, "1"), "limits"),
        (b"a", change(0, "1"), "seq"),
        (b"a", change(1, "1", ts_ms=-1), "timestamp"),
        (b"a", change(1, "1", db="other"), "of the database 'other'"),
        (None, change(1, "1"), "unknown field `op`"),
        (None, b'{"resolved":1,"ts_ms":1,"offsets":{"x":1}}', "invalid literal"),
        (None, b'{"resolved":-1,"ts_ms":1,"offsets":{}}', "negative"),
    ],
)
def test_a_change_that_cannot_be_applied_is_refused_with_its_place(
    model: ReadModel, key: bytes | None, value: bytes, why: str
) -> None:
    topic = MemoryTopic(2)
    topic.append(1, key, value)
    with pytest.raises(RecordError, match=rf"partition 1, offset 0 .*{why}"):
        follow(model, topic)


def test_what_something_else_has_written_is_passed_over_and_told(
    model: ReadModel, caplog: pytest.LogCaptureFixture
) -> None:
    topic = MemoryTopic(2)
    topic.append(1, b"a", change(1, "1"))
    for key in (None, b"a", b"\xff"):
        for value in STRANGE:
            topic.append(1, key, value)
    resolve(topic, 1)
    follow(model, topic)
    with model.snapshot() as snapshot:
        assert [entry.key for entry in snapshot.scan()] == ["a"]
    (told,) = (each for each in caplog.messages if "is no record of streamy-db's" in each)
    assert told.startswith("bank.changes, partition 1, offset 2 ")


def test_scans_check_their_bounds(model: ReadModel, topic: MemoryTopic) -> None:
    follow(model, topic)
    with model.snapshot(2) as snapshot:
        assert snapshot.scan(limit=0) == []
        with pytest.raises(ValueError, match="limit"):
            snapshot.scan(limit=-1)
        with pytest.raises(ValueError, match="limit"):
            snapshot.history("a", limit=-1)
        with pytest.raises(ValueError, match="limit"):
            snapshot.scan_json(limit=0, bytes_max=1)
        for wrong in ("k" * 481, "\ud800"):
            with pytest.raises(ValueRejected):
                snapshot.scan(ScanRange(start=wrong))
            with pytest.raises(ValueRejected):
                snapshot.get_json([wrong], 1)
            with pytest.raises(ValueRejected):
                snapshot.get(wrong)
        assert snapshot.get("") is None


def test_errors_are_ours() -> None:
    assert issubclass(ReadModelError, StreamyError)
    for kind in (SnapshotGone, SnapshotAhead, ChangesExpiredError, SourceError, StoreBusyError):
        assert issubclass(kind, ReadModelError)


def test_a_scan_past_many_deleted_keys_lets_others_go_on(
    model: ReadModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower, too, which removes from the file what the scan has yet to pass."""
    nothing_superfluous(monkeypatch)
    topic, seqs = MemoryTopic(1), count(1)
    keys = [f"job/{n:05}" for n in range(5_000)]
    for key in keys:
        write(topic, 0, next(seqs), key, "1")
    for key in keys[:-1]:
        write(topic, 0, next(seqs), key, None)
    resolve(topic, 9_999)
    follow(model, topic)
    steps: list[int] = []

    def step(*given: Any) -> tuple[int, bool]:
        seq = next(seqs)
        write(topic, 0, seq, keys[-1], "2")
        resolve(topic, seq)
        follow(model, topic, retention_s=0)
        steps.append(given[-1][2])
        found: tuple[int, bool] = advanced(*given)
        return found

    monkeypatch.setattr(snapshots, "advanced", step)
    with model.snapshot() as snapshot:
        assert not snapshot.scan_json(limit=9, bytes_max=99, at_once=True).whole
        assert snapshot.scan() == [Entry(keys[-1], b"1", 5_000, 50_000)]
        assert steps == [2_048] * 3
        page = snapshot.scan_json(limit=9, bytes_max=99)
        assert page.items == b'{"key":"job/04999","value":1,"version":5000,"ts_ms":50000}'
    assert model.oldest() > 9_999
    with model.snapshot() as snapshot:
        assert snapshot.scan_json(limit=9, bytes_max=99, at_once=True).whole
