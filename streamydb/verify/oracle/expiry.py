"""Expiry in the serial oracle: what has ended is taken out of the state before each record."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush

from streamydb.records.expiry import EXPIRY_ID, end_of, removal_number
from streamydb.verify.oracle.outputs import OutputRecord, Place


class OracleExpiry:
    """The ends of the keys of a state; a key that was given another end is there twice."""

    def __init__(self) -> None:
        self._ends: list[tuple[int, str]] | None = None

    def note(self, key: str, after: bytes | None) -> None:
        end = end_of(after)
        if end is not None and self._ends is not None:
            heappush(self._ends, (end, key))

    def over(self, ts_ms: int, state: Mapping[str, tuple[bytes, int]]) -> list[str]:
        """Return the keys that have ended by a commit time, each once; they are to be removed."""
        if self._ends is None:
            ends = ((end_of(value), key) for key, (value, _) in state.items())
            self._ends = sorted((end, key) for end, key in ends if end is not None)
        gone: dict[str, None] = {}
        while self._ends and self._ends[0][0] <= ts_ms:
            end, key = heappop(self._ends)
            if key in state and end_of(state[key][0]) == end:
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
