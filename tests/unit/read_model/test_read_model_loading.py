"""Read models from snapshots of random histories: loaded anywhere, they go on as if from the start.

What a snapshot is made of is taken from the truth of a history; its positions are those that
`write_snapshot` finds: before the first record beyond the seq.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from streamydb.backup.snapshots import SnapshotError, SnapshotTail
from streamydb.backup.snapshots.manifest import MANIFEST
from streamydb.backup.snapshots.rows import SnapshotRow
from streamydb.read_model import ReadModel, load, verify
from streamydb.read_model.rows import Row
from streamydb.records import Change, decode_change
from streamydb.records import Resolved as ResolvedRecord
from tests.support.memory_topic import MemorySource
from tests.support.read_model import rewritten, small_parts
from tests.support.seeds import seeds
from tests.unit.backup.test_snapshots import make
from tests.unit.read_model.test_read_model_history import (
    ODD_KEYS,
    SETTINGS,
    History,
    Reader,
    Retained,
    check_snapshot,
)


def positions(history: History, at: int) -> tuple[dict[int, SnapshotTail], int]:
    """Where each partition goes on after a seq, and the time of the seq."""
    tails, times = {}, [0]
    for number, records in history.topic.records.items():
        position, point = history.topic.spans[number].high, (0, 0)
        offsets: dict[int, int] = {}
        for record in reversed(records):
            value = record.value()
            found = None if value is None else decode_change(value)
            if isinstance(found, Change):
                seq, ts_ms = found.source.seq, found.ts_ms
            elif isinstance(found, ResolvedRecord):
                seq, ts_ms = found.resolved, found.ts_ms
                if seq <= at and (seq, record.offset()) > point:
                    point = seq, record.offset()
                    offsets = {int(n): end for n, end in found.offsets.items()}
            else:
                continue
            if seq > at:
                position = record.offset()
            else:
                times.append(ts_ms)
        tails[number] = SnapshotTail(position, point[0], offsets)
    return tails, max(times)


def snapshot(history: History, folder: Path, at: int, files: int) -> dict[int, SnapshotTail]:
    """Write a snapshot at a seq."""
    tails, ts_ms = positions(history, at)
    rows = [
        SnapshotRow(
            each.key.encode(),
            each.value,
            each.version,
            each.ts_ms,
            b"t%d" % each.version,
            each.expires_ms,
        )
        for each in history.at(at)
    ]
    make(folder, rows, files, seq=at, ts_ms=ts_ms, changes=tails)
    return tails


@pytest.mark.parametrize("seed", range(seeds(25, 5)))
def test_a_read_model_from_any_snapshot_is_right_at_every_later_seq(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(f"loading {seed}")
    small_parts(monkeypatch, rng)
    history = History(rng, rng.choice([1, 2, 3]))
    for _ in range(rng.randrange(12)):
        history.plan()
    at = rng.randint(0, history.common({n: s.high for n, s in history.topic.spans.items()}))
    tails = snapshot(history, tmp_path / "s", at, rng.choice([1, 2, 5]))
    seen: list[tuple[int, int]] = []
    load(tmp_path / "s", tmp_path / "loaded", "bank", lambda *told: seen.append(told))
    assert seen[-1:] == [(len(history.at(at)),) * 2][: len(seen)]
    for number, tail in tails.items():
        if rng.random() < 0.5:
            history.topic.expire(number, tail.position)
    retained = Retained(rng.choice([0, 1, 1e9]), rng.choice([0, 5, float("inf")]))
    reader = Reader(history, tmp_path / "loaded", retained)
    for _ in range(15):
        check(history, reader, at)
        history.plan()
        reader.step()
    history.finish()
    while reader.model.latest().seq < history.seq or reader.follower._more:
        reader.step()
    check(history, reader, at)
    reader.model.close()


def check(history: History, reader: Reader, at: int) -> None:
    """Compare with the truth at a few seqs, none of them before the snapshot's."""
    model, rng = reader.model, history.rng
    latest, oldest = model.latest().seq, model.oldest()
    assert latest == max(at, history.common(reader.positions()))
    assert at <= oldest <= latest
    for seq in {oldest, latest, rng.randint(oldest, latest)}:
        with model.snapshot(seq) as shown:
            check_snapshot(history, shown, oldest)


@pytest.mark.parametrize("seed", range(12))
def test_what_differs_from_the_topic_is_named_and_nothing_else_is(
    seed: int, tmp_path: Path
) -> None:
    """The examined one has read everything or began with a snapshot; it may be behind."""
    rng = random.Random(f"verify {seed}")
    history = History(rng, rng.choice([1, 3]))
    for _ in range(12):
        history.plan()
    if rng.random() < 0.5:
        end = history.common({n: s.high for n, s in history.topic.spans.items()})
        snapshot(history, tmp_path / "s", rng.randint(0, end), 2)
        load(tmp_path / "s", tmp_path / "model", "bank")
    if rng.random() < 0.7:
        history.finish()
    reader = Reader(history, tmp_path / "model", Retained(rng.choice([0, 1e9]), 0))
    for _ in range(4):
        reader.step()
    wrong = damage(rng, history, reader.model)
    source = MemorySource(history.topic)
    for _ in range(rng.randrange(3)):
        history.plan()
    told: list[int] = []
    verdict = verify(
        tmp_path / "model", SETTINGS, tmp_path / "scratch", source=source,
        note=lambda seq, _: told.append(seq),
    )  # fmt: skip
    assert verdict.seq == reader.model.latest().seq == max([0, *told])
    assert verdict.entries == len(history.at(verdict.seq))
    assert verdict.differing == sorted(wrong, key=str.encode)[:10]
    reader.model.close()


def damage(rng: random.Random, history: History, model: ReadModel) -> set[str]:
    """Change entries that the latest snapshot shows, and add some; the keys."""
    shown = {entry.key: entry for entry in history.at(model.latest().seq)}
    wrong = set(rng.sample(ODD_KEYS, rng.choice([0, 1, 4, 14]))) if model.latest().seq else set()
    others = []
    for key in wrong:
        entry = shown.get(key)
        if entry is None:
            others.append(Row(key.encode(), model.latest().seq, 1, b"t", b'"new"'))
        else:
            ts_ms = entry.ts_ms + rng.choice([0, 1])
            same = [] if ts_ms == entry.ts_ms else [entry.value]
            data = rng.choice([b'"?"', b"", *same])
            end = entry.expires_ms or 0
            if rng.random() < 0.3:
                ts_ms, data, end = entry.ts_ms, entry.value, end ^ 1
            others.append(Row(key.encode(), entry.version, ts_ms, b"t", data, end))
    names = {(row.key, row.seq) for row in others}
    rewritten(
        model, lambda rows: [*others, *(row for row in rows if (row.key, row.seq) not in names)]
    )
    return wrong


@pytest.mark.parametrize("seed", range(10))
def test_what_cannot_be_loaded_leaves_nothing_behind(seed: int, tmp_path: Path) -> None:
    rng = random.Random(f"refused {seed}")
    history = History(rng, 2)
    for _ in range(6):
        history.plan()
    history.finish()
    snapshot(history, tmp_path / "s", history.seq, 2)
    path = rng.choice([*(tmp_path / "s" / "data").iterdir(), tmp_path / "s" / MANIFEST])
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data))])
    with pytest.raises(SnapshotError):
        load(tmp_path / "s", tmp_path / "loaded", "bank")
    assert [each.name for each in tmp_path.iterdir()] == ["s"]
    path.write_bytes(data)
    load(tmp_path / "s", tmp_path / "loaded", "bank")
    with ReadModel.open(tmp_path / "loaded", "bank") as model, model.snapshot() as shown:
        assert shown.scan() == history.at(history.seq)
