"""The window of ids against a plain dict, and through a batch that is repeated."""

from __future__ import annotations

import copy
import random

import numpy as np

from streamydb.columns import Table
from streamydb.key_processor.idwindow import IdWindow, IdWindowState
from streamydb.pipeline.memory import MemoryBlobs, MemoryIdTables


def used(ids: list[int], seqs: list[int]) -> Table:
    cols = {
        "id0": np.array(ids, np.uint64),
        "id1": np.array(ids, np.uint64) + np.uint64(7),
        "payload": np.array(ids, np.uint64) * np.uint64(3),
        "seq": np.array(seqs, np.int64),
        "ts": np.array(seqs, np.int64) * 10,
        "part": np.zeros(len(ids), np.int32),
        "off": np.array(seqs, np.int64) - 1,
    }
    return Table(cols)


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
    assert again.use(56)["ts"] == 560


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
