"""Values that settle into segments: the file against a dict, whatever is written, lost or torn."""

from __future__ import annotations

import itertools
import os
import pickle
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamydb.frames import program as p
from streamydb.frames.blobs import KeyScan, Position, key_named
from streamydb.frames.table import Ragged
from streamydb.frames.value_rows import WrittenValues
from streamydb.key_processor.memory import MemoryBlobs, MemoryValues
from streamydb.key_processor.value_store import items_of
from streamydb.key_processor.values import ShardValues, ValuesState
from streamydb.local import segment_files, shard_files
from streamydb.local.segment_files import Settling
from streamydb.local.shard_files import LmdbSnapshot, LmdbValues
from tests.support.seeds import seeds

KEYS = 3_000


@pytest.fixture(autouse=True)
def settles_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settle a few hundred entries, into segments of a few pages."""
    monkeypatch.setattr(shard_files, "_RECENT_PAGES_MAX", 4)
    monkeypatch.setattr(shard_files, "_WHOLE_SHARE", 1 << 60)
    monkeypatch.setattr(shard_files, "_SETTLED_MIN", 50)
    monkeypatch.setattr(segment_files, "_SEGMENT_PAGES", 3)
    monkeypatch.setattr(segment_files, "_SEGMENTS_MANY", 8)
    monkeypatch.setattr(segment_files, "_STEP_ENTRIES", 70)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    LmdbValues.close(tmp_path)


def key_of(number: int) -> bytes:
    """Keys of several lengths, some of which begin others."""
    return (b"a/%d", b"a/%04d/b", b"long/" + b"x" * 40 + b"%d", b"%d")[number % 4] % number


def drawn(rng: random.Random, version: int, count: int = 200) -> WrittenValues:
    """Draw writes of all kinds, each key once."""
    around = rng.randrange(KEYS)
    numbers = {
        rng.randrange(KEYS) if rng.random() < 0.5 else min(KEYS - 1, around + rng.randrange(300))
        for _ in range(count)
    }
    tags = [rng.choice([p.INT, p.INT, p.OPAQUE, p.EXPIRING, p.ABSENT]) for _ in numbers]
    texts = [
        b"" if tag in (p.INT, p.ABSENT) else b"t" * rng.choice([1, 8, 300, 1_000, 1_750, 5_000])
        for tag in tags
    ]
    return WrittenValues(
        np.array(tags, np.uint8),
        np.array([rng.randrange(1_000) if tag in (p.INT, p.EXPIRING) else 0 for tag in tags]),
        np.full(len(tags), version),
        Ragged.of([key_of(number) for number in sorted(numbers)]),
        Ragged.of(texts),
    )


def compare(store: LmdbValues, model: MemoryValues, rng: random.Random) -> None:
    """Require that both answer alike."""
    at = store.position()
    assert at == model.at
    keys = [key_of(number) for number in range(KEYS)]
    assert store.load(at, keys) == model.load(at, keys)
    few = rng.sample(keys, 20)
    assert store.load(at, few) == model.load(at, few)
    assert store.sizes(at, keys) == model.sizes(at, keys)
    bounds = sorted(rng.sample([*keys, b"", b"zz"], 2))
    for start, end in [bounds, (b"", b"\xff")]:
        wanted = KeyScan(start, end, set(few), rng.choice([7, 10_000]), rng.choice([300, 1 << 40]))
        assert store.scan(at, wanted) == model.scan(at, wanted)
    until = rng.randrange(1_000)
    found = store.due(at, until, b"", 10_000)
    assert found is not None
    assert found == model.due(at, until, b"", 10_000)
    assert all(key in model.data for _, key in map(key_named, found))


def segments(folder: Path) -> list[Path]:
    return sorted((folder / "segments").glob("*"))


def apply_both(store: LmdbValues, model: MemoryValues, writes: WrittenValues) -> None:
    before = model.at
    reached: Position = (before[0] + 1, f"p{before[0]}")
    assert store.apply(before, reached, *items_of(writes))
    assert model.apply(before, reached, *items_of(writes))


@pytest.mark.parametrize("seed", range(seeds(4, 2)))
def test_values_that_settle_are_what_was_written(folder: Path, seed: int) -> None:
    rng, model = random.Random(seed), MemoryValues()
    store, most = LmdbValues(folder), 0
    held: list[tuple[LmdbSnapshot, dict[bytes, bytes]]] = []
    for version in range(45):
        apply_both(store, model, drawn(rng, version))
        if rng.random() < 0.2:
            LmdbValues.close(folder) if not held else None
            store = LmdbValues(folder)
        if rng.random() < 0.1:
            snapshot = LmdbSnapshot.of(folder)
            assert snapshot is not None
            held.append((snapshot, dict(model.data)))
        if rng.random() < 0.3:
            compare(store, model, rng)
        if held and rng.random() < 0.2:
            require(*held.pop(0))
        if version == 30 and rng.random() < 0.5:
            assert store.clear(model.at, (31, "cleared"))
            assert not segments(folder)
            assert model.clear(model.at, (31, "cleared"))
        most = max(most, len(segments(folder)))
    compare(store, model, rng)
    for pair in held:
        require(*pair)
    assert most > 3


def require(snapshot: LmdbSnapshot, values: dict[bytes, bytes]) -> None:
    """Require that a snapshot shows the values of its moment, and end it."""
    assert list(snapshot.items(b"")) == sorted(values.items())
    keys = [key_of(number) for number in range(KEYS)]
    assert snapshot.load(keys) == [values.get(key) for key in keys]
    snapshot.close()


class Died(Exception):  # noqa: N818 - what happened
    """A process died here."""


@pytest.mark.parametrize("seed", range(seeds(4, 2)))
def test_a_death_while_values_settle_leaves_them_whole(
    folder: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, model, died = random.Random(seed), MemoryValues(), 0

    def dies(name: str, *, torn: bool) -> Callable[..., Any]:
        original = getattr(Settling, name)

        def patched(self: Settling, *args: Any) -> Any:
            if rng.random() < 0.15:
                if torn:
                    (folder / "segments" / f"torn{rng.random()}").write_bytes(b"half a page")
                raise Died
            return original(self, *args)

        return patched

    for name, torn in (("_write", True), ("_merge", False), ("finish", False)):
        monkeypatch.setattr(Settling, name, dies(name, torn=torn))
    for version in range(45):
        writes, before = drawn(rng, version), model.at
        try:
            apply_both(LmdbValues(folder), model, writes)
        except Died:
            died += 1
            LmdbValues.close(folder)
            reached = (before[0] + 1, f"p{before[0]}")
            assert model.apply(before, reached, *items_of(writes))
        if rng.random() < 0.3:
            compare(LmdbValues(folder), model, rng)
    compare(LmdbValues(folder), model, rng)
    assert died > 3
    monkeypatch.undo()


@pytest.mark.parametrize("seed", range(seeds(4, 1)))
def test_a_process_that_is_killed_while_values_settle_leaves_them_whole(
    folder: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGKILL between a segment's file, the commit of LMDB, and the removal of earlier files."""
    rng, model, killed = random.Random(seed), MemoryValues(), set[str]()
    steps: dict[str, Callable[..., Any]] = {
        name: getattr(Settling, name) for name in ("_write", "run", "finish")
    }
    kinds: list[tuple[str, bool]] = []
    with monkeypatch.context() as patch:
        for version in range(40):
            if not kinds:  # each comes in each six
                kinds = [(step, behind) for step in steps for behind in (False, True)]
                rng.shuffle(kinds)
            (step, behind), turn = kinds.pop(), rng.randrange(3)
            patch.setattr(Settling, step, deadly(steps[step], turn, behind=behind))
            writes, before = drawn(rng, version), model.at
            reached = (before[0] + 1, f"p{before[0]}")
            LmdbValues.close(folder)
            child = os.fork()
            if child == 0:
                try:
                    LmdbValues(folder).apply(before, reached, *items_of(writes))
                finally:
                    os._exit(0)
            _, status = os.waitpid(child, 0)
            patch.setattr(Settling, step, steps[step])
            if os.WIFSIGNALED(status):
                killed.add(f"{step} {behind}")
            store = LmdbValues(folder)
            assert store.position() == reached
            assert model.apply(before, reached, *items_of(writes))
            if rng.random() < 0.3:
                compare(store, model, rng)
                apply_both(store, model, drawn(rng, version))
    compare(LmdbValues(folder), model, rng)
    assert len(killed) >= 4


def deadly(sound: Callable[..., Any], turn: int, *, behind: bool) -> Callable[..., Any]:
    """Return a step in whose call number ``turn`` its process is killed, before or behind it."""
    turns = itertools.count()

    def step(self: Settling, *args: Any) -> Any:
        dies = next(turns) == turn
        if dies and not behind:
            os.kill(os.getpid(), signal.SIGKILL)
        made = sound(self, *args)
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return made

    return step


def test_files_that_no_transaction_names_are_removed(folder: Path) -> None:
    rng, model, store = random.Random(1), MemoryValues(), LmdbValues(folder)
    (folder / "segments").mkdir()
    left = folder / "segments" / "left"
    left.write_bytes(b"by who died")
    for version in range(20):
        apply_both(store, model, drawn(rng, version))
    assert not left.exists()
    with store._env.begin() as txn:
        named = {segment.name for segment in store._segments(txn).listed}
    assert named == {path.name for path in segments(folder)} != set()


def harm_segments(folder: Path, harm: str) -> None:
    for path in segments(folder):
        if harm == "removed":
            path.unlink()
        else:
            data = path.read_bytes()
            path.write_bytes(b"" if harm == "empty" else data[: len(data) // 2])


READS = ("load", "scan", "sizes", "deletes", "settles", "snapshot")


@pytest.mark.parametrize("harm", ["removed", "cut", "empty"])
def test_a_file_that_has_lost_a_segment_is_made_anew(tmp_path: Path, harm: str) -> None:
    rng, state, blobs, model = random.Random(2), ValuesState(), MemoryBlobs(), MemoryValues()
    for version in range(30):
        writes = drawn(rng, version)
        ShardValues(state, blobs, LmdbValues(tmp_path / "sound")).apply(writes)
        model.apply(model.at, (state.applied, state.digest), *items_of(writes))
    LmdbValues.close(tmp_path / "sound")
    sound = pickle.dumps((rng, state, blobs, model))
    for reads in READS:
        folder = shutil.copytree(tmp_path / "sound", tmp_path / reads)
        harm_segments(folder, harm)
        is_made_anew(folder, reads, *pickle.loads(sound))  # noqa: S301 - our own
        LmdbValues.close(folder)


def is_made_anew(
    folder: Path,
    reads: str,
    rng: random.Random,
    state: ValuesState,
    blobs: MemoryBlobs,
    model: MemoryValues,
) -> None:
    """Require that a file is not believed, and holds the values after the next use."""
    store, at = LmdbValues(folder), (state.applied, state.digest)
    keys = [key_of(number) for number in range(KEYS)]
    values = ShardValues(state, blobs, store)
    if reads == "load":
        assert store.load(at, keys) is None
    elif reads == "scan":
        assert store.scan(at, KeyScan(b"", b"\xff", (), 10_000, 1 << 40)) is None
    elif reads == "sizes":
        assert store.sizes(at, keys) is None
    elif reads == "snapshot":
        assert LmdbSnapshot.of(folder) is None
    else:
        writes = WrittenValues.deletes(keys) if reads == "deletes" else drawn(rng, 30)
        values.apply(writes)
        model.apply(model.at, (state.applied, state.digest), *items_of(writes))
    values.read(Ragged.of(keys))
    compare(LmdbValues(folder), model, rng)


def test_a_worker_of_an_earlier_list_reads_on(folder: Path) -> None:
    rng, model, store = random.Random(3), MemoryValues(), LmdbValues(folder)
    for version in range(20):
        apply_both(store, model, drawn(rng, version))
    at, raw = store.position(), store._segments(store._env.begin()).raw
    stale = segment_files.Segments(folder / "segments", raw, {})
    before = segments(folder)
    while set(before) & set(segments(folder)):
        apply_both(store, model, drawn(rng, 99))
    with pytest.raises(segment_files.SegmentLostError):
        stale.open_all()
    assert store.load(at, [b"1"]) is None
    segment_files._OPEN[folder / "segments"] = stale  # another process's, of long ago
    compare(store, model, rng)


def test_a_release_without_segments_does_not_trust_a_file_that_has_them(folder: Path) -> None:
    rng, state, blobs, model = random.Random(4), ValuesState(), MemoryBlobs(), MemoryValues()
    for version in range(20):
        writes = drawn(rng, version)
        ShardValues(state, blobs, LmdbValues(folder)).apply(writes)
        model.apply(model.at, (state.applied, state.digest), *items_of(writes))
    store = LmdbValues(folder)
    with store._env.begin(store._about, write=True) as txn:
        seen = bytes(txn.get(b"position", b"")).decode().split(" ")
        assert seen[1] != state.digest  # as an earlier release reads it
        txn.drop(store._values, delete=False)
        txn.drop(store._ends, delete=False)
        txn.put(b"position", b"7 anew")  # as it then makes the file anew
    assert store.load((7, "anew"), [key_of(n) for n in range(KEYS)]) == [None] * KEYS
    ShardValues(state, blobs, store).read(Ragged.of([b"1"]))
    compare(store, model, rng)


def test_values_that_fit_into_memory_do_not_settle(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, model, store = random.Random(5), MemoryValues(), LmdbValues(folder)
    monkeypatch.setattr(shard_files, "_WHOLE_SHARE", 32)
    for version in range(10):
        apply_both(store, model, drawn(rng, version))
    assert not segments(folder)
    with store._env.begin(store._values) as txn:
        pages = txn.stat(store._values)["leaf_pages"]
    monkeypatch.setattr(shard_files, "memory_bytes", lambda: 32 * 4_096 * (pages - 1))
    apply_both(store, model, drawn(rng, 10))
    assert segments(folder)
    monkeypatch.setattr(shard_files, "memory_bytes", lambda: 1 << 60)
    before = segments(folder)
    while set(before) & set(segments(folder)):  # what has settled once goes on to
        apply_both(store, model, drawn(rng, 11))
    compare(store, model, rng)


def test_a_snapshot_is_whole_though_its_segments_are_replaced_while_it_opens_them(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, model, store = random.Random(6), MemoryValues(), LmdbValues(folder)
    for version in range(20):
        apply_both(store, model, drawn(rng, version))
    opens, replaced = segment_files.Segments.open_all, list[int]()

    def replaces(self: segment_files.Segments) -> None:
        if not replaced:
            before = segments(folder)
            while set(before) & set(segments(folder)):
                apply_both(store, model, drawn(rng, 20))
                replaced.append(1)
            self.open.clear()  # as in another process, which has not opened them yet
        opens(self)

    monkeypatch.setattr(segment_files.Segments, "open_all", replaces)
    snapshot = LmdbSnapshot.of(folder)
    assert replaced
    assert snapshot is not None
    require(snapshot, dict(model.data))
