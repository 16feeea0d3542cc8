"""Expiry in the serial oracle: what has ended is taken out of the state before each record."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from streamydb.records.expiry import EXPIRY_ID, end_of, removal_number
from streamydb.verify.oracle.outputs import OutputRecord, Place

__all__ = ["OracleExpiry", "removals"]


class OracleExpiry:
    """The ends of the keys of a state; a key that was given another end is there twice."""

    def __init__(self) -> None:
        """Nothing ends."""
        self._ends: list[tuple[int, str]] = []

    def note(self, key: str, after: bytes | None) -> None:
        """Note a write."""
        end = end_of(after)
        if end is not None:
            heappush(self._ends, (end, key))

    def over(self, ts_ms: int, value: Callable[[str], bytes | None]) -> list[str]:
        """Return the keys that have ended by a commit time, each once; they are to be removed."""
        gone: dict[str, None] = {}
        while self._ends and self._ends[0][0] <= ts_ms:
            end, key = heappop(self._ends)
            if end_of(value(key)) == end:
                gone[key] = None
        return list(gone)


def removals(gone: dict[str, bytes], place: Place) -> list[OutputRecord]:
    """The changes that tell of keys that have ended, and that their seq does not write itself."""
    outputs = []
    for key, before in sorted(gone.items()):
        name = key.encode()
        change = place.change(EXPIRY_ID, removal_number(name), before, None)
        outputs += [OutputRecord("changes", name, change), OutputRecord("changes", name, None)]
    return outputs
