"""Leave changes out of a stream that were written again after a crash (no Spark).

Spark's own ways do not fit: `dropDuplicates` keeps every (seq, index) for good, and a watermark
drops rows that are late, as those of a partition that is read later than others are. The changes
topic itself says what can be forgotten: behind a record "resolved: n" of a partition, every change
up to n in that partition is a repetition. What must be remembered are the changes above it that
have been seen: those of the plans under way.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

__all__ = ["SeenRecords"]


class SeenRecords:
    """The records that were seen of one partition.

    Attributes:
        resolved: everything up to this seq.
        above: (seq, index) beyond it.
    """

    def __init__(self, resolved: int = 0, above: bytes = b"") -> None:
        """Begin where another one, whose `pack` gave ``above``, ended."""
        self.resolved = resolved
        pairs = np.frombuffer(above, np.int64).reshape(-1, 2)
        self.above = set(map(tuple, pairs.tolist()))

    def fresh(
        self, events: Iterable[tuple[int, int, bool]]
    ) -> npt.NDArray[np.bool_]:
        """Mark the events that are changes and come for the first time.

        Args:
            events: (seq, index, whether it is a resolved record), in the order of their offsets.
        """
        return np.array([self._is_fresh(*event) for event in events], np.bool_)

    def pack(self) -> bytes:
        """Encode what to remember beside `resolved`."""
        return np.array(sorted(self.above), np.int64).tobytes()

    def _is_fresh(self, seq: int, index: int, resolved: bool) -> bool:  # noqa: FBT001
        if resolved:
            if seq > self.resolved:
                self.resolved = seq
                self.above = {pair for pair in self.above if pair[0] > seq}
            return False
        if seq <= self.resolved or (seq, index) in self.above:
            return False
        self.above.add((seq, index))
        return True
