"""The expected outputs of a serial replay, kept small: one 64-bit digest an output.

The digest of an output is Python's hash of (record key, record value): keyed SipHash, made anew in
every process, so a difference goes unnoticed once in 2^64 and nobody can aim at it. It never leaves
the process.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from streamydb.records.expiry import EXPIRY_ID, is_removal, removal_number

_SEQ = b',"seq":'
_DUPLICATE = b',"duplicate":{"seq":'
_DUPLICATE_TAIL = re.compile(
    rb',"duplicate":\{"seq":(\d+),"ts_ms":\d+,"partition":\d+,"offset":\d+\}\}'
)
_DEAD_SEQ = b'{"seq":'


class Output(NamedTuple):
    """One record of an output topic."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class OutputName(msgspec.Struct, frozen=True, order=True, gc=False):
    """Names one output whose expected bytes are wanted.

    ``index``: 0 of results and dead letters. ``key_hash``: of a removal by time, whose index
    another may share.
    """

    topic: str
    seq: int
    index: int
    key_hash: int = 0


def result_seq(value: bytes | None) -> int:
    """The seq that identifies a result record: its duplicate's, else its own; 0 if unreadable."""
    if value is None:
        return 0
    at = value.rfind(_DUPLICATE)
    if at >= 0:
        tail = _DUPLICATE_TAIL.fullmatch(value, at)
        if tail is not None:
            return int(tail[1])
    return _number_after(value, _SEQ)


def dead_letter_seq(value: bytes | None) -> int:
    """The seq of a dead letter; 0 if unreadable."""
    return _number_after(value, _DEAD_SEQ) if value is not None else 0


def _number_after(value: bytes, mark: bytes) -> int:
    """The integer that follows the first `mark`, up to a comma; 0 if there is none."""
    at = value.find(mark)
    end = value.find(b",", at + len(mark))
    digits = value[at + len(mark) : end]
    return int(digits) if at >= 0 and end >= 0 and digits.isdigit() else 0


class _ExpectedTransaction(msgspec.Struct, gc=False):
    total_order: int


class _ExpectedChange(msgspec.Struct, gc=False):
    transaction: _ExpectedTransaction


_decode = msgspec.json.Decoder(_ExpectedChange).decode
_EXPIRY = f'"{EXPIRY_ID}"'.encode()


def tells_removal(change: bytes) -> bool:
    """Return True if a change is a removal by time."""
    return _EXPIRY in change and is_removal(_decode(change).transaction.total_order)


class Expected:
    """Digests of all expected outputs in order of seq, and where each transaction lies in the log.

    Attributes:
        results: per seq (index seq - 1), the digest of its result record.
        starts: per seq, the number of changes of all earlier ones; one more entry at the end.
        changes: digests of all changes, in order of (seq, index); removals come last.
        removals: where in these the removals by time are, by seq, number and hash of the key.
        dead: seq -> digest of its dead letter.
    """

    def __init__(self) -> None:
        self.results = array("q")
        self.starts = array("q", [0])
        self.changes = array("q")
        self.removals: dict[tuple[int, int, int], int] = {}
        self.dead: dict[int, int] = {}
        self._seqs: dict[int, array[int]] = {}
        self._offsets: dict[int, array[int]] = {}

    @property
    def transactions(self) -> int:
        """The number of transactions that were replayed; the last one's seq."""
        return len(self.results)

    def add(
        self,
        partition: int,
        offset: int,
        result: tuple[bytes | None, bytes],
        changes: Sequence[Sequence[tuple[bytes, bytes]]],
        dead: tuple[bytes | None, bytes] | None,
    ) -> None:
        """Add the outputs of the next transaction; records are (key, value).

        ``changes``: its own, and the removals that its place has by time. Tombstones are not among
        them: each follows from its delete.
        """
        self.results.append(hash(result))
        seq, (digests, removals) = len(self.results), changes
        for change in digests:
            self.changes.append(hash(change))
        for key, value in removals:
            self.removals[seq, removal_number(key), hash(key)] = len(self.changes)
            self.changes.append(hash((key, value)))
        self.starts.append(len(self.changes))
        if dead is not None:
            self.dead[seq] = hash(dead)
        if partition not in self._seqs:
            self._seqs[partition] = array("q")
            self._offsets[partition] = array("q")
        self._seqs[partition].append(seq)
        self._offsets[partition].append(offset)

    def covers(self, seq: int, partition: int, offset: int) -> bool:
        """Return True if `offset` is a true first offset of `partition` that `seq` does not cover.

        True if every transaction of the partition before `offset` has a seq up to `seq`, and every
        one from `offset` on has a later one.
        """
        seqs = self._seqs.get(partition)
        if seqs is None:
            return True
        offsets = self._offsets[partition]
        count = bisect_right(seqs, seq)
        before = offsets[count - 1] if count else -1
        after = offsets[count] if count < len(offsets) else None
        return before < offset and (after is None or offset <= after)
