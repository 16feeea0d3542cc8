"""What ids cost to remember, with deadlines and without, on one shard: bytes, and time a record.

    python -m bench.ids [seconds of commit time] [how far ahead the deadlines are, in seconds]

Runs the id window with its real tables (files) at 100,000 transactions a second of commit time, in
plans of 50,000. Blobs are what Spark's state store holds, tables are files that are mapped.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from streamydb.key_processor.id_rows import UsedIds
from streamydb.key_processor.idwindow import IdWindow, IdWindowState
from streamydb.key_processor.memory import MemoryBlobs
from streamydb.limits import ID_WINDOW_DEFAULT
from streamydb.local.id_files import FileIdTables

RATE, PLAN = 100_000, 50_000
START_MS = 1_700_000_000_000


def uses(rng: np.random.Generator, seq: int, ahead_ms: int) -> UsedIds:
    """A plan of fresh ids after ``seq``, with deadlines so far ahead; 0: none."""
    number = seq + 1 + np.arange(PLAN)
    ts = START_MS + number * 1_000 // RATE
    jitter = rng.integers(-500, 500, PLAN)
    id0, id1, payload = rng.integers(1, 2**63, (3, PLAN)).astype(np.uint64)
    deadline = ts + ahead_ms + jitter if ahead_ms else np.zeros_like(ts)
    return UsedIds(id0, id1, payload, number, ts, np.zeros(PLAN, np.int32), number - 1, deadline)


def measured(seconds: int, ahead_ms: int) -> str:
    """A row of the report."""
    rng = np.random.default_rng(1)
    blobs, state, taken = MemoryBlobs(), IdWindowState(ID_WINDOW_DEFAULT), []
    with tempfile.TemporaryDirectory() as folder:
        tables = FileIdTables(Path(folder))
        for seq in range(0, RATE * seconds, PLAN):
            plan = uses(rng, seq, ahead_ms)
            window = IdWindow(state, blobs, tables)
            begun = time.perf_counter()
            window.last_use(plan.id0, plan.id1, seq)
            looked = time.perf_counter()
            window.remember(plan, seq + 1, seq + PLAN, int(plan.ts_ms[-1]))
            taken.append((looked - begun, time.perf_counter() - looked))
        files = sum(path.stat().st_blocks * 512 for path in Path(folder).rglob("*.table"))
    kept = [state.ids, *(span.ids for span in state.spans.values())]
    ids = sum(run.rows for runs in kept for run in runs)
    stored = sum(map(len, blobs.blobs.values()))
    look, note = np.median(np.array(taken[len(taken) // 2 :]), axis=0) / PLAN * 1e9
    return (
        f"deadline {ahead_ms // 1_000:>3} s: {ids:>10,} ids, blobs {stored / 1e6:>6.0f} MB "
        f"({stored / ids:.0f} a id), tables {files / 1e6:>6.0f} MB ({files / ids:.0f} a id), "
        f"look-up {look:.0f} ns, noting {note:.0f} ns a record"
    )


def main() -> None:
    """Measure and print."""
    given = [int(text) for text in sys.argv[1:]]
    seconds, ahead_s = (*given, *(150, 60)[len(given) :])
    for ahead_ms in (0, 1_000 * ahead_s):
        print(measured(seconds, ahead_ms))


if __name__ == "__main__":
    main()
