"""Random histories against a dictionary: whatever comes, in whatever pieces, every seq is right.

A history has transactions that write nothing, deletions, keys that are prefixes of each other,
offsets without records, parts that were written twice after a crash (with what was resolved going
back), and read models that crash between any two steps of a commit, are copied, and start again.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import UNSET, Raw, structs

from streamydb.read_model import (
    Entry,
    Follower,
    ReadModel,
    Snapshot,
    SnapshotAhead,
    SnapshotGone,
    Version,
    copy_to,
    follower,
    runs,
    store,
)
from streamydb.read_model import snapshot as snapshots
from streamydb.read_model.ports import JsonPage
from streamydb.records import (
    Change,
    ChangeOrigin,
    ChangeTransaction,
    encode_change,
    encode_resolved,
)
from streamydb.records import Resolved as ResolvedRecord
from streamydb.records.ranges import ScanRange
from streamydb.settings import Settings
from streamydb.testing.memory_model import MemoryEntry, MemorySnapshot
from tests.support.memory_topic import MemorySource, MemoryTopic
from tests.support.read_model import check_stored, nothing_superfluous, rows_in, small_parts
from tests.support.seeds import seeds

SETTINGS = Settings(database="bank", bootstrap="127.0.0.1:1")
SEEDS = [
    pytest.param(seed, marks=[pytest.mark.long] if seed == 2 else [])
    for seed in range(seeds(12, 6))
]
"""The third draws the smallest parts for many readers: it takes as long as ten others."""

ODD_KEYS = [
    "\x00", "\x00\x00", "\x00\x01", "a", "a\x00", "a\x00b", "a\x01", "ab", "abc", "b", "é", "éa",
    "\x7f", "\u07ff", "\uffff", "\U0010ffff", "\U0010ffff" * 120, "x" * 480, "x" * 479,
    "\x00" * 480, "0", "acct/1", "acct/10", "acct/2",
]  # fmt: skip


class Crash(Exception):  # noqa: N818 - what it plays
    """The process is gone; nothing that was not committed is left."""


class History:
    """A topic, and the truth: key -> its versions, oldest first.

    Attributes:
        topic: what a read model reads.
        truth: what it must show.
        points: (seq, timestamp) of everything that tells a time; what goes back tells none, so that
            the time of a seq never changes.
        resolved: per partition, (offset, seq) of its resolved records.
        ends: the part of the writes that leave their key with an end.
    """

    def __init__(self, rng: random.Random, partitions: int) -> None:
        """Begin empty."""
        self.rng = rng
        self.topic = MemoryTopic(partitions)
        self.truth: dict[str, list[Version]] = {}
        self.points: set[tuple[int, int]] = {(0, 0)}
        self.resolved: dict[int, list[tuple[int, int]]] = {n: [] for n in range(partitions)}
        self.seq, self.ts_ms = 0, 1000
        self.ends = 0.3
        self._plans: list[tuple[int, int, list[tuple[int, bytes, bytes | None]]]] = []

    def plan(self) -> None:
        """Execute a few transactions and write them, perhaps after a try that was cut off."""
        rng, written = self.rng, list[tuple[int, bytes, bytes | None]]()
        for _ in range(rng.randint(1, 12)):
            self.seq += 1
            self.ts_ms += rng.choice([0, 0, 0, 1, 5, 300])
            for key in rng.sample(ODD_KEYS, rng.choice([0, 0, 1, 2, 3])):
                written += self._write(key)
        self._plans.append((self.seq, self.ts_ms, written))
        if rng.random() < 0.2:
            self._append(written, cut=True)
        self._append(written)
        if rng.random() < 0.8:
            self._resolve(self.seq, self.ts_ms)
        if rng.random() < 0.15:
            for seq, ts_ms, again in self._plans[rng.randrange(len(self._plans)) :]:
                self._append(again)
                self._resolve(seq, ts_ms)

    def finish(self) -> None:
        """Resolve everything everywhere."""
        for number in self.topic.records:
            self._resolve_in(number, self.seq, self.ts_ms)

    def common(self, positions: dict[int, int]) -> int:
        """What is resolved in every partition up to these positions."""
        return min(
            max((seq for at, seq in self.resolved[number] if at < position), default=0)
            for number, position in positions.items()
        )

    def at(self, seq: int) -> list[Entry]:
        """All entries right after a seq, in order."""
        found = []
        for key, versions in self.truth.items():
            last = next((v for v in reversed(versions) if v.version <= seq), None)
            if last is not None and last.value is not None:
                found.append(Entry(key, last.value, last.version, last.ts_ms, last.expires_ms))
        return sorted(found, key=lambda entry: entry.key.encode())

    def _write(self, key: str) -> Iterator[tuple[int, bytes, bytes | None]]:
        versions = self.truth.setdefault(key, [])
        exists = bool(versions) and versions[-1].value is not None
        deleted = exists and self.rng.random() < 0.4
        value = None if deleted else b'"%d"' % self.seq
        ends = not deleted and self.rng.random() < self.ends
        end = self.ts_ms + self.rng.choice([1, 7, 10**15]) if ends else None
        versions.append(Version(self.seq, self.ts_ms, value, f"t{self.seq}", end))
        self.points.add((self.seq, self.ts_ms))
        change = Change(
            "d" if deleted else "u" if exists else "c", Raw(b"1" if exists else b"null"),
            Raw(value or b"null"), self.ts_ms, ChangeOrigin("streamydb", "bank", 0, 7, self.seq),
            ChangeTransaction(f"t{self.seq}", 1, 1), UNSET if end is None else end,
        )  # fmt: skip
        partition = zlib.crc32(key.encode()) % len(self.topic.records)
        yield partition, key.encode(), encode_change(change)
        if deleted:
            yield partition, key.encode(), None

    def _append(self, written: list[tuple[int, bytes, bytes | None]], *, cut: bool = False) -> None:
        """Append to every partition in order; ``cut``: only the beginning in each."""
        for number in self.topic.records:
            own = [record for record in written if record[0] == number]
            for record in own[: self.rng.randint(0, len(own))] if cut else own:
                self.topic.append(*record)
            if self.rng.random() < 0.3:
                self.topic.skip(number, self.rng.randint(1, 3))

    def _resolve(self, seq: int, ts_ms: int) -> None:
        """Write a resolved record; some partitions may miss it."""
        for number in self.topic.records:
            if self.rng.random() < 0.9:
                self._resolve_in(number, seq, ts_ms)

    def _resolve_in(self, number: int, seq: int, ts_ms: int) -> None:
        value = encode_resolved(ResolvedRecord(seq, ts_ms, {"0": seq}))
        if all(earlier <= seq for _, earlier in self.resolved[number]):
            self.points.add((seq, ts_ms))
        self.resolved[number].append((self.topic.append(number, None, value), seq))


class Retained(NamedTuple):
    """How long a reader keeps snapshots."""

    seconds: float
    seqs: float


class Reader:
    """A read model that follows a history in random pieces, and may crash."""

    def __init__(self, history: History, folder: Path, retained: Retained) -> None:
        """Open it and begin to follow."""
        self.history, self.folder, self.retained = history, folder, retained
        self.oldest = 0
        self._start()

    def _start(self) -> None:
        self.model = ReadModel.open(self.folder, "bank", write=True)
        rng = self.history.rng
        source = MemorySource(
            self.history.topic, lambda _, left: rng.choice([0, min(1, left), left // 2, left])
        )
        self.follower = Follower(
            self.model, SETTINGS, retention_s=self.retained.seconds,
            retention_seqs=self.retained.seqs, source=source,
        )  # fmt: skip

    def restart(self) -> None:
        """Begin again where the store is."""
        self.model.close()
        self._start()

    def copied(self, folder: Path) -> Self:
        """Another reader, from a copy of this one."""
        copy_to(self.model, folder)
        return type(self)(self.history, folder, self.retained)

    def step(self) -> None:
        """One step, or a crash in it."""
        rng = self.history.rng
        if rng.random() < 0.25:
            with pytest.MonkeyPatch.context() as patch, suppress(Crash):
                crash_somewhere(patch, rng)
                self.follower.step(0)
            self.restart()
        else:
            self.follower.step(0)

    def positions(self) -> dict[int, int]:
        """How far it has read."""
        parts = self.model.store.progress().parts
        return {n: parts[n].position if n in parts else 0 for n in self.history.topic.records}

    def check(self) -> None:
        """Compare it with the truth at a few seqs."""
        history, model = self.history, self.model
        latest, oldest = model.latest().seq, model.oldest()
        assert latest == history.common(self.positions())
        assert self.oldest <= oldest <= latest
        self.oldest = oldest
        for seq in {oldest, latest, history.rng.randint(oldest, latest)}:
            with model.snapshot(seq) as snapshot:
                check_snapshot(history, snapshot, oldest)
        with pytest.raises(SnapshotAhead):
            model.snapshot(latest + 1)
        if oldest:
            with pytest.raises(SnapshotGone):
                model.snapshot(oldest - 1)


def crash_somewhere(patch: pytest.MonkeyPatch, rng: random.Random) -> None:
    """Let the next commit crash at one of its steps, or right after it."""

    def crash(*_: object, **__: object) -> None:
        raise Crash

    place = rng.choice(
        ["_add", "_check_repeats", "_put_progress", "_horizon", "settle", "_put_runs", "after"]
    )
    if place == "settle":
        patch.setattr(runs.Runs, place, crash)
    elif place != "after":
        patch.setattr(store.Store, place, crash)


def check_snapshot(history: History, snapshot: Snapshot, oldest: int) -> None:
    """Compare a snapshot with the truth in every way there is to read."""
    rng, truth = history.rng, history.at(snapshot.seq)
    assert snapshot.scan() == truth
    by_key = {entry.key: entry for entry in truth}
    keys = rng.sample(ODD_KEYS, 6)
    assert snapshot.get_many(keys) == [by_key.get(key) for key in keys]
    twice, room = [*keys, keys[0]], rng.choice([0, 10, 100, 1_000])
    assert snapshot.get_json(twice, room) == in_memory(truth).get_json(twice, room)
    for key in keys[:2]:
        versions = [v for v in history.truth.get(key, []) if v.version <= snapshot.seq]
        newer = [v for v in versions if v.version > oldest]
        base = [v for v in versions if v.version <= oldest and v.value is not None][-1:]
        if base and base[0] != [v for v in versions if v.version <= oldest][-1]:
            base = []
        assert snapshot.history(key) == [*reversed(newer), *base]
    page, pages = snapshot.scan(limit=3), []
    while page:
        pages += page
        page = snapshot.scan(ScanRange(after=page[-1].key), limit=3)
    assert pages == truth


def in_memory(entries: list[Entry]) -> MemorySnapshot:
    """A snapshot that makes its JSON of objects."""
    return MemorySnapshot(0, {e.key: MemoryEntry(*structs.astuple(e)) for e in entries})


def expected_oldest(history: History, retained: Retained, latest: int) -> int:
    """The oldest seq that may be read when everything is read, straight from its definition."""
    until_ms = history.ts_ms - retained.seconds * 1000
    by_time = [
        seq
        for seq in range(latest + 1)
        if max(ts_ms for at, ts_ms in history.points if at <= seq) <= until_ms
    ]
    return max(0, min(latest - int(retained.seqs), max(by_time, default=0)))


@pytest.mark.parametrize("seed", SEEDS)
def test_any_history_read_in_any_way_is_right_at_every_seq(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    small_parts(monkeypatch, rng)
    monkeypatch.setattr(follower, "BATCH_RECORDS_MAX", rng.choice([1, 4, 5_000]))  # a hurry
    history = History(rng, rng.choice([1, 2, 3, 5]))
    retained = Retained(rng.choice([0, 0.3, 1, 2]), rng.choice([0, 5, 40]))
    readers = [
        Reader(history, tmp_path / "all", Retained(1e9, float("inf"))),
        Reader(history, tmp_path / "some", retained),
    ]
    for number in range(30):
        history.plan()
        for reader in readers:
            reader.step()
            reader.check()
        if rng.random() < 0.08:
            readers.append(rng.choice(readers).copied(tmp_path / f"copy{number}"))
    history.finish()
    for reader in readers:
        while reader.model.latest().seq < history.seq or reader.follower._more:
            reader.step()
        reader.restart()
        reader.check()
        check_stored(reader.model)
    assert readers[1].model.oldest() == expected_oldest(history, retained, history.seq)
    check_agreement(history, readers)
    for reader in readers:
        reader.model.close()


def check_agreement(history: History, readers: list[Reader]) -> None:
    """All readers show the same at every seq that they have; different seqs differ if data does."""
    digests: dict[int, str] = {}
    truth = [history.at(seq) for seq in range(history.seq + 1)]
    for reader in readers:
        for seq in range(reader.model.oldest(), history.seq + 1):
            with reader.model.snapshot(seq) as snapshot:
                digest = snapshot.digest()
                assert digest == digests.setdefault(seq, digest)
                assert snapshot.scan() == truth[seq]
    assert digests.keys() == set(range(history.seq + 1)), "one of them keeps everything"
    for seq in range(history.seq):
        same = truth[seq] == truth[seq + 1]
        assert (digests[seq] == digests[seq + 1]) == same
    for seq, ts_ms in history.points:
        found = readers[0].model.seq_at(ts_ms)
        assert found >= seq
        with readers[0].model.snapshot(found) as snapshot:
            assert snapshot.ts_ms == ts_ms
        assert all(at <= found for at, other_ms in history.points if other_ms <= ts_ms)


@pytest.mark.parametrize("seed", range(seeds(10, 5)))
def test_nothing_is_left_of_what_no_snapshot_shows(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_parts(monkeypatch, random.Random(seed))
    nothing_superfluous(monkeypatch)
    history = History(random.Random(1000 + seed), 3)
    reader = Reader(history, tmp_path / "now", Retained(0, 0))
    for _ in range(20):
        history.plan()
        reader.step()
    history.finish()
    while reader.model.latest().seq < history.seq or reader.follower._more:
        reader.step()
    check_stored(reader.model)
    assert [(row.key.decode(), row.seq) for row in rows_in(reader.model)] == [
        (entry.key, entry.version) for entry in history.at(history.seq)
    ]
    with reader.model.store.environment.reading() as txn:
        assert txn.stat(reader.model.store.tables.times)["entries"] == 1
    reader.model.close()


KEYS = st.one_of(st.sampled_from(ODD_KEYS), st.text("\x00\x01aé", max_size=4))
BOUNDS = st.one_of(st.none(), KEYS)


@pytest.fixture(scope="module")
def scanned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[History, Reader]]:
    """A read model with many odd keys, read to its end."""
    history = History(random.Random(5), 2)
    reader = Reader(history, tmp_path_factory.mktemp("scans") / "all", Retained(1e9, 0))
    for _ in range(30):
        history.plan()
    history.finish()
    while reader.model.latest().seq < history.seq:
        reader.follower.step(0)
    yield history, reader
    reader.model.close()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    prefix=st.one_of(st.just(""), KEYS), start=BOUNDS, end=BOUNDS, after=BOUNDS,
    limit=st.integers(0, 30), share=st.floats(0, 1), room=st.integers(0, 300),
    keys=st.sampled_from([1, 2, 7, 2_048]),
)  # fmt: skip
def test_scans_show_what_lies_between_their_bounds(
    scanned: tuple[History, Reader], prefix: str, start: str | None, end: str | None,
    after: str | None, limit: int, share: float, room: int, keys: int,
) -> None:  # fmt: skip
    history, reader = scanned
    seq, asked = int(share * history.seq), ScanRange(prefix, start, end, after)
    expected = [
        entry
        for entry in history.at(seq)
        if entry.key.startswith(prefix)
        and (start is None or entry.key.encode() >= start.encode())
        and (end is None or entry.key.encode() < end.encode())
        and (after is None or entry.key.encode() > after.encode())
    ]
    with reader.model.snapshot(seq) as snapshot, pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshots, "_STEP_KEYS", keys)
        found = snapshot.scan(asked, limit=limit)
        page, at_once = (
            snapshot.scan_json(asked, limit=limit + 1, bytes_max=room, at_once=at_once)
            for at_once in (False, True)
        )
    assert found == expected[:limit]
    assert expected == [entry for entry in history.at(seq) if asked.has(entry.key)]
    assert page == in_memory(expected).scan_json(limit=limit + 1, bytes_max=room)
    assert at_once in (page, JsonPage(b"", None, whole=False))
    assert at_once.whole or keys < len(ODD_KEYS)
