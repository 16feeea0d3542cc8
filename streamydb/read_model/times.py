"""The commit timestamps of seqs: of those that begin a new one, in an order of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamydb.read_model.rows import pack_seq, unpack_seq

if TYPE_CHECKING:
    import lmdb

    from streamydb.read_model.environment import Tables

TIMES_MAX: Final = 65_536  # timestamps that one commit removes


def commit_time(times: lmdb.Cursor[memoryview], seq: int) -> int:
    """The commit timestamp of the last change or resolved point up to ``seq``; 0 before any."""
    past = times.set_range(pack_seq(seq + 1))
    return unpack_seq(times.value()) if (times.prev() if past else times.last()) else 0


def last_until(times: lmdb.Cursor[memoryview], ts_ms: int, oldest: int, latest: int) -> int:
    """The last seq from ``oldest`` to ``latest`` with a commit timestamp up to ``ts_ms``.

    Bisection, since timestamps never fall along the seqs; ``oldest`` if all are later.
    """
    while oldest < latest:
        middle = (oldest + latest + 1) // 2
        if commit_time(times, middle) <= ts_ms:
            oldest = middle
        else:
            latest = middle - 1
    return oldest


def forget_times(txn: lmdb.Transaction[memoryview], tables: Tables, horizon: int) -> None:
    """Remove timestamps before the one that holds at the horizon."""
    times = txn.cursor(tables.times)
    past = times.set_range(pack_seq(horizon + 1))
    if not (times.prev() if past else times.last()):
        return
    oldest_kept = bytes(times.key())
    times.first()
    for _ in range(TIMES_MAX):
        if bytes(times.key()) >= oldest_kept:
            break
        times.delete()
