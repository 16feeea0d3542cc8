"""Checks of a state that a backup hands on, and a shard is handed; see `columns.invariants`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from streamydb.columns.block_checks import require_feedback
from streamydb.columns.blocks import empty_verdicts
from streamydb.columns.invariants import HANDED_IN, HANDED_ON, Seam
from streamydb.columns.table import Columns

__all__ = ["made", "read", "remembered"]

_MADE = Seam("backup", HANDED_ON, "a state")
_READ = Seam("backup", HANDED_IN, "a state")


def made(pieces: Iterable[Columns], seq: int) -> Iterator[Columns]:
    """Pass on values; require that they are of seqs up to ``seq``."""
    for piece in pieces:
        require_feedback(_MADE, (1, seq), piece, empty_verdicts())
        yield piece


def read(pieces: Iterable[Columns], seq: int, keys: int) -> Iterator[Columns]:
    """Pass on values; require that they are of seqs up to ``seq``, and as many as there are."""
    found = 0
    for piece in pieces:
        require_feedback(_READ, (1, seq), piece, empty_verdicts())
        found += len(piece)
        yield piece
    _READ.require(found == keys, "every key is there", keys=keys, found=found)


def remembered(ids: Columns, verdicts: Columns, seq: int, *, is_new: bool) -> None:
    """Require that ids and verdicts are of seqs up to ``seq``; ``is_new``: it is being made."""
    seam = _MADE if is_new else _READ
    for table in (ids, verdicts):
        seqs = table.cols["seq"]
        within = not len(seqs) or (int(seqs.min()) >= 1 and int(seqs.max()) <= seq)
        seam.require(within, "what is remembered is of its seqs", last=seq)
