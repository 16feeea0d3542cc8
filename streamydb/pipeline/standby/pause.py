"""Measure for how long clients got no verdict, by the results topic alone (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

_SEQ: Final = re.compile(rb'"seq":(\d+),"ts_ms":(\d+)')


class TimedVerdict(NamedTuple):
    """A verdict: when it was written, its seq, and when its transaction was appended, in ms."""

    at_ms: int
    seq: int
    appended_ms: int


def written(at_ms: int, value: bytes | None) -> TimedVerdict | None:
    """A record of the results topic; None if it is not understood."""
    found = _SEQ.search(value or b"")
    return None if found is None else TimedVerdict(at_ms, int(found[1]), int(found[2]))


def longest_pause(verdicts: Iterable[TimedVerdict], begun_ms: int) -> int | None:
    """Return the longest time, in ms, in which a transaction waited and no new verdict was written.

    Of what was written after ``begun_ms``; None if nothing was. A verdict that is written again, by
    one who leads now or led before, is not a new one.
    """
    longest, last_ms, seq = None, begun_ms, 0
    for verdict in sorted(verdicts):
        if verdict.seq <= seq:
            continue
        seq = verdict.seq
        if verdict.at_ms >= begun_ms:
            waited_ms = verdict.at_ms - max(last_ms, verdict.appended_ms)
            longest = max(longest or 0, waited_ms)
            last_ms = verdict.at_ms
    return longest
