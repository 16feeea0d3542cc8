"""Leave changes out of a stream that were written again after a crash (no Spark).

Spark's own ways do not fit: `dropDuplicates` keeps every name for good, and a watermark
drops rows that are late, as those of a partition that is read later than others are. The changes
topic itself says what can be forgotten: behind a record "resolved: n" of a partition, every change
up to n in that partition is a repetition. What must be remembered are the changes above it that
have been seen: those of the plans under way.

A change is known by (seq, index, key). A checkpoint of an earlier release remembers it without the
key; such a change counts as seen whatever its key is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

__all__ = ["SeenRecords"]


_KEYED: Final = (-1).to_bytes(8, "little", signed=True)
"""What is packed begins with it if it has keys; before, it began with a seq, which is above 0."""

_Name = tuple[int, int, str | None]
"""(seq, index, key); no key if that was not kept."""

_decode = msgspec.msgpack.Decoder(list[_Name]).decode


class SeenRecords:
    """The records that were seen of one partition.

    Attributes:
        resolved: everything up to this seq.
        above: the names of those beyond it.
    """

    def __init__(self, resolved: int = 0, above: bytes = b"") -> None:
        """Begin where another one, whose `pack` gave ``above``, ended."""
        self.resolved = resolved
        self.above: set[_Name] = set(_unpacked(above))

    def fresh(
        self, events: Iterable[tuple[int, int, str | None, bool]]
    ) -> npt.NDArray[np.bool_]:
        """Mark the events that are changes and come for the first time.

        Args:
            events: (seq, index, key, whether it is a resolved record), in the order of their
                offsets.
        """
        return np.array([self._is_fresh(*event) for event in events], np.bool_)

    def pack(self) -> bytes:
        """Encode what to remember beside `resolved`."""
        if not self.above:
            return b""
        names = sorted(self.above, key=lambda name: (name[0], name[1], name[2] or ""))
        return _KEYED + msgspec.msgpack.encode(names)

    def _is_fresh(
        self, seq: int, index: int, key: str | None, resolved: bool  # noqa: FBT001
    ) -> bool:
        if resolved:
            if seq > self.resolved:
                self.resolved = seq
                self.above = {name for name in self.above if name[0] > seq}
            return False
        if seq <= self.resolved or not self.above.isdisjoint(
            ((seq, index, key), (seq, index, None))
        ):
            return False
        self.above.add((seq, index, key))
        return True


def _unpacked(above: bytes) -> Iterable[_Name]:
    """The names in what `SeenRecords.pack` of this release, or of an earlier one, has made."""
    if above.startswith(_KEYED):
        return _decode(above[len(_KEYED) :])
    pairs = np.frombuffer(above, np.int64).reshape(-1, 2)
    return [(seq, index, None) for seq, index in pairs.tolist()]
