"""The window of ids against a plain dict, and through a batch that is repeated."""

from __future__ import annotations

import copy
import random
from contextlib import closing
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from streamydb.frames.value_rows import Verdicts
from streamydb.key_processor import idwindow
from streamydb.key_processor.id_rows import UsedIds
from streamydb.key_processor.idwindow import IdWindow, IdWindowState
from streamydb.key_processor.memory import MemoryBlobs, MemoryIdTables
from streamydb.local import id_files
from streamydb.local.id_files import FileIdTables
from tests.support.open_files import open_files
from tests.support.seeds import seeds


def used(ids: list[int], seqs: list[int], deadlines: list[int] | None = None) -> UsedIds:
    id0, seq = np.array(ids, np.uint64), np.array(seqs, np.int64)
    return UsedIds(
        id0,
        id0 + np.uint64(7),
        id0 * np.uint64(3),
        seq,
        seq * 10,
        np.zeros(len(ids), np.int32),
        seq - 1,
        None if deadlines is None else np.array(deadlines, np.int64),
    )


def dated(ids: list[int], seqs: list[int], deadlines: list[int]) -> UsedIds:
    """Uses with deadlines, 0 for none."""
    return used(ids, seqs, deadlines)


def look(window: IdWindow, ids: list[int], upto: int) -> list[int]:
    id0 = np.array(ids, np.uint64)
    return [int(seq) for seq in window.last_use(id0, id0 + np.uint64(7), upto)]


def test_a_repeated_batch_finds_what_the_first_attempt_found() -> None:
    """The simulator's seed 434: a plan longer than the window dropped a table too early."""
    blobs, tables = MemoryBlobs(), MemoryIdTables()
    window = IdWindow(IdWindowState(20), blobs, tables)
    window.remember(used([11, 12], [3, 5]), 1, 5)
    kept_state, kept_blobs = copy.deepcopy(window.state), MemoryBlobs(blobs.blobs)
    plan = used(list(range(100, 161)), list(range(6, 67)))
    assert look(window, [12], 5) == [5]
    window.remember(plan, 6, 66)
    again = IdWindow(kept_state, kept_blobs, tables)
    assert look(again, [11, 12, 13, 100], 5) == [3, 5, 0, 0]
    again.remember(plan, 6, 66)
    assert look(again, [12, 150], 66) == [0, 56]
    assert again.use(56).ts_ms == 560


def test_any_history_agrees_with_a_dict() -> None:
    rng = random.Random(3)
    blobs, tables = MemoryBlobs(), MemoryIdTables()
    state, known, seq = IdWindowState(50), dict[int, int](), 0
    for _ in range(120):
        window = IdWindow(state, blobs, tables)
        ids = rng.sample(range(1, 400), rng.randint(0, 30))
        found = look(window, ids, seq)
        for name, last in zip(ids, found, strict=True):
            expected = known.get(name, 0)
            if expected > seq - 50:
                assert last == expected
        fresh = [name for name in ids if known.get(name, -50) <= seq - 50]
        seqs = list(range(seq + 1, seq + 1 + len(fresh)))
        known.update(zip(fresh, seqs, strict=True))
        first, seq = seq + 1, seq + len(ids)
        window.remember(used(fresh, seqs), first, seq)
        if rng.random() < 0.2:
            tables = MemoryIdTables()
    assert len(state.ids) < 15


@pytest.mark.parametrize("seed", range(seeds(12, 3)))
def test_ids_are_remembered_for_the_window_and_until_their_deadlines(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against a dict: batches that are repeated, tables that vanish, short spans, joined spans."""
    rng = random.Random(seed)
    monkeypatch.setattr(idwindow, "_RUN_ROWS_MAX", rng.choice([8, 64, 65_536]))
    monkeypatch.setattr(id_files, "_MAPPED", {})  # no file stays open after the test
    size = rng.choice([40, 400, 4_000])
    blobs, places = MemoryBlobs(), count()
    tables = FileIdTables(tmp_path / f"{next(places)}")
    state, seq, now = IdWindowState(size, span_ms=rng.choice([16, 100, 20_000])), 0, 1_000
    known: dict[int, tuple[int, int]] = {}
    joined = 0
    for _ in range(150):
        now += rng.choice([0, 1, 5, 40])
        ids = rng.sample(range(1, 300), rng.randint(0, 30))
        seqs = list(range(seq + 1, seq + 1 + len(ids)))
        before = copy.deepcopy(state), dict(blobs.blobs)
        for attempt in range(rng.choice([1, 1, 2])):
            if attempt:
                state, blobs = before[0], MemoryBlobs(before[1])
            if rng.random() < 0.1:
                tables.close()
                tables = FileIdTables(tmp_path / f"{next(places)}")
            window = IdWindow(state, blobs, tables)
            id0 = np.array(ids, np.uint64)
            last = window.last_use(id0, id0 + np.uint64(7), seq)
            found = []
            for name, at, original in zip(ids, seqs, last.tolist(), strict=True):
                use = window.repeated(original, at, now)
                used_at, deadline = known.get(name, (0, 0))
                remembered = used_at > max(at - size, 0) or 0 < deadline >= now
                assert (use is not None) == remembered, (name, at, now, known.get(name))
                assert use is None or use.seq == used_at
                assert not remembered or window.verdict(used_at) == verdict_of(used_at)
                found.append(remembered)
            fresh = [(n, s) for n, s, f in zip(ids, seqs, found, strict=True) if not f]
            ahead = random.Random(seq).choices([0, 3, 30, 200, 5_000], k=len(fresh))
            ends = [now + ms if ms else 0 for ms in ahead]
            rows = dated([n for n, _ in fresh], [s for _, s in fresh], ends)
            window.remember(rows, seq + 1, seq + len(ids), now)
            told = [(s, verdict) for _, s in fresh if (verdict := verdict_of(s)) is not None]
            window.conclude(Verdicts.of(told))
            joined += min(state.spans, default=0) < 0
        known.update({n: (s, end) for (n, s), end in zip(fresh, ends, strict=True)})
        seq += len(ids)
    tables.close()
    spans = [*state.spans.values()]
    if state.span_ms < 1_000 and size == 40:
        assert sum(run.rows for span in spans for run in span.ids) < 300
    assert joined or state.span_ms > 1_000
    runs = [run.name for span in spans for run in (*span.ids, *span.verdicts)]
    assert set(blobs.blobs) == {*runs, *(run.name for run in (*state.ids, *state.verdicts))}


def verdict_of(seq: int) -> bytes | None:
    """The result of every third transaction, which is not a plain commit."""
    return None if seq % 3 else b"result %d" % seq


def test_few_transactions_with_deadlines_leave_few_spans_blobs_and_files(tmp_path: Path) -> None:
    """Once each had a span, and a worker a descriptor for it, until a million more had come."""
    blobs, state, files = MemoryBlobs(), IdWindowState(1_048_576), 0
    with closing(FileIdTables(tmp_path)) as tables:
        for seq in range(1, 401):
            now = 20_000 * seq
            window = IdWindow(state, blobs, tables)
            assert look(window, [seq - 1, seq], seq - 1) == [seq - 1, 0]
            window.remember(dated([seq], [seq], [now + 60_000]), seq, seq, now)
            window.conclude(Verdicts.of([(seq, b"result %d" % (3 * seq))]))
            files = max(files, open_files(tmp_path))
        window = IdWindow(state, blobs, tables)
        asked = random.Random(1).sample(range(1, 400), 50)
        assert look(window, asked, 400) == asked
        assert [window.verdict(seq) for seq in asked] == [b"result %d" % (3 * n) for n in asked]
        assert len(state.spans) < 20
        assert len(blobs.blobs) < 60
        assert len(tables.names()) < 25
    assert 0 < files < 50


def test_verdicts_go_with_the_spans_of_their_ids() -> None:
    blobs, tables = MemoryBlobs(), MemoryIdTables()
    window = IdWindow(IdWindowState(5, span_ms=100), blobs, tables)
    window.remember(dated([1, 2, 3], [1, 2, 3], [0, 1_050, 1_950]), 1, 3, 1_000)
    window.conclude(Verdicts.of([(1, b"one"), (2, b"two"), (3, b"three")]))
    window.remember(dated([9], [50], [0]), 4, 50, 1_050)
    assert [window.verdict(seq) for seq in (1, 2, 3)] == [None, b"two", b"three"]
    window.remember(dated([10], [51], [0]), 51, 51, 1_100)
    assert [window.verdict(seq) for seq in (2, 3)] == [None, b"three"]
    window.remember(dated([11], [52], [0]), 52, 52, 2_000)
    assert window.state.spans == {}
    assert {name.partition("/")[0] for name in blobs.blobs} == {"ids"}


@pytest.mark.parametrize("deadline", [0, 1_500])
def test_a_table_that_was_made_later_does_not_hide_what_an_older_state_remembers(
    deadline: int,
) -> None:
    """A checkpoint's copy is put back on a machine whose tables were lost and made again."""
    blobs, tables = MemoryBlobs(), MemoryIdTables()
    window = IdWindow(IdWindowState(100, span_ms=1_000), blobs, tables)
    window.remember(dated([7], [10], [deadline]), 1, 10, 1_000)
    window.remember(dated(list(range(100, 140)), list(range(11, 51)), [0] * 40), 11, 50, 1_000)
    older, kept = copy.deepcopy(window.state), MemoryBlobs(blobs.blobs)
    window.remember(dated([8], [150], [deadline]), 51, 150, 3_000)
    tables = MemoryIdTables()
    again = IdWindow(window.state, blobs, tables)
    assert look(again, [8], 150) == [150]
    back = IdWindow(older, kept, tables)
    assert look(back, [7, 8], 50) == [10, 0]
