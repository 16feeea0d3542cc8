"""Leave changes out of a stream that were written again after a crash (no Spark).

Spark's own ways do not fit: `dropDuplicates` keeps every name for good, and a watermark
drops rows that are late, as those of a partition that is read later than others are. The changes
topic itself says what can be forgotten: behind a record "resolved: n" of a partition, every change
up to n in that partition is a repetition. What must be remembered are the changes above it that
have been seen: those of the plans under way.

A change is known by (seq, index, key).

A topic that was deleted and made anew has other records at the same offsets, and Spark's Kafka
source goes on where it was: it would skip what is before that. So Kafka's id of the topic is
remembered, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from streamydb.errors import ConfigurationError

_MARK: Final = (-2).to_bytes(8, "little", signed=True)  # the first bytes of what is packed
_Name = tuple[int, int, str]  # (seq, index, key)
_decode = msgspec.msgpack.Decoder(tuple[str, list[_Name]]).decode


class SeenRecords:
    """The records that were seen of one partition.

    Attributes:
        resolved: everything up to this seq.
        above: the names of those beyond it.
        topic: Kafka's id of the topic that the partition is of; empty if nobody told it.
    """

    def __init__(self, resolved: int = 0, above: bytes = b"", topic: str = "") -> None:
        """Begin where another one, whose `pack` gave ``above``, ended.
        Raises ConfigurationError: that one was of another topic than ``topic``.
        """
        self.resolved = resolved
        known, names = _decode(above[len(_MARK) :]) if above else ("", [])
        if known and topic and known != topic:
            raise ConfigurationError(
                f"The topic of the changes was made anew: the checkpoint belongs to the topic with "
                f"the id {known}, and it has {topic} now. Name another checkpoint, and make anew "
                f"what the query has written."
            )
        self.topic = topic or known
        self.above: set[_Name] = set(names)

    def fresh(self, events: Iterable[tuple[int, int, str | None, bool]]) -> npt.NDArray[np.bool_]:
        """Mark the events that are changes and come for the first time.

        Args:
            events: (seq, index, key, whether it is a resolved record), in the order of their
                offsets.
        """
        return np.array([self._is_fresh(*event) for event in events], np.bool_)

    def pack(self) -> bytes:
        """Encode what to remember beside `resolved`."""
        return _MARK + msgspec.msgpack.encode((self.topic, sorted(self.above)))

    def _is_fresh(
        self,
        seq: int,
        index: int,
        key: str | None,
        resolved: bool,  # noqa: FBT001
    ) -> bool:
        if resolved:
            if seq > self.resolved:
                self.resolved = seq
                self.above = {name for name in self.above if name[0] > seq}
            return False
        name = seq, index, key or ""
        if seq <= self.resolved or name in self.above:
            return False
        self.above.add(name)
        return True
