"""Checks of a state that a backup hands on, and a shard is handed; see `frames.invariants`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from streamydb.frames.invariants import HANDED_IN, HANDED_ON, Seam
from streamydb.frames.value_rows import Verdicts, WrittenValues
from streamydb.key_processor.id_rows import UsedIds

_MADE = Seam("backup", HANDED_ON, "a state")
_READ = Seam("backup", HANDED_IN, "a state")


def made(pieces: Iterable[WrittenValues], seq: int) -> Iterator[WrittenValues]:
    """Pass on values; require that they are of seqs up to ``seq``."""
    for piece in pieces:
        piece.check(_MADE, (1, seq))
        yield piece


def read(pieces: Iterable[WrittenValues], seq: int, keys: int) -> Iterator[WrittenValues]:
    """Pass on values; require that they are of seqs up to ``seq``, and as many as there are."""
    count = 0
    for piece in pieces:
        piece.check(_READ, (1, seq))
        count += len(piece)
        yield piece
    _READ.require(count == keys, "every key is there", keys=keys, found=count)


def remembered(ids: UsedIds, verdicts: Verdicts, seq: int, *, is_new: bool) -> None:
    """Require that ids and verdicts are of seqs up to ``seq``; ``is_new``: it is being made."""
    seam = _MADE if is_new else _READ
    for seqs in (ids.seq, verdicts.seq):
        within = not len(seqs) or (int(seqs.min()) >= 1 and int(seqs.max()) <= seq)
        seam.require(within, "what is remembered is of its seqs", last=seq)
