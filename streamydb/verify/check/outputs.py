"""Records of the output topics, and what names them: a seq, an index among the changes, a key."""

from __future__ import annotations

import re
from typing import NamedTuple

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


class OutputName(NamedTuple):
    """Names one output whose expected bytes are wanted.

    ``index``: 0 but for changes. ``key_hash``: of a removal by time, whose index another may share.
    """

    kind: str
    seq: int
    index: int  # type: ignore[assignment]  # a field, not the method of tuples
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
