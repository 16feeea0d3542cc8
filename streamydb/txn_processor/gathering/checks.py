"""Checks of what an executing partition of `grouping=single` is handed, and hands on; see
`frames.invariants`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from streamydb.frames.invariants import HANDED_IN, HANDED_ON, Seam
from streamydb.frames.lock_messages import Granted, Payload
from streamydb.key_processor.locking.checks import require_messages
from streamydb.txn_processor.gathering.execution import Finished

_GATHERED = Seam("txn_processor/gathering", HANDED_IN, "payloads and grants")
_FINISHED = Seam("txn_processor/gathering", HANDED_ON, "released locks")


def gathered(payloads: Sequence[Payload], grants: Sequence[Granted]) -> None:
    """Require payloads and grants as shards send them."""
    require_messages(_GATHERED, payloads, grants)


def finished(txns: Iterable[Finished]) -> None:
    """Require that transactions are in order, and each gives a lock back once."""
    last = 0
    for txn in txns:
        _FINISHED.require(txn.seq > last, "transactions are in order", seq=txn.seq, before=last)
        last = txn.seq
        rows = [row for rows in txn.releases.values() for row in rows]
        once = len({row.lock for row in rows}) == len(rows)
        own = all(row.seq == txn.seq for row in rows)
        _FINISHED.require(once and own, "each lock comes back once", seq=txn.seq)
