"""Confirmations: the groups of the real-time gear that are in Kafka as a whole (pure).

Spark's sink does not say when Kafka has taken a record. So the driver reads the outputs back and
compares them with what the worker says it has handed to Spark, by hashes. A group is confirmed when
all its outputs, and those of the groups before it, were seen.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from streamydb.columns.hashing import hash_ragged
from streamydb.columns.table import Ragged
from streamydb.pipeline.realtime.messages import Executed

__all__ = ["Confirmations", "output_hashes"]

Hashes = npt.NDArray[np.uint64]

_KEY_SEED: Final = 0x6B65_79
_VALUE_SEED: Final = 0x7661_6C
_TOPIC_FACTOR: Final = 0x9E37_79B9_7F4A_7C15
_EARLY_MAX: Final = 1_000_000
"""Outputs that are seen before the worker has told of them, at most."""


def output_hashes(topic: int, keys: Ragged, values: Ragged) -> Hashes:
    """Return a hash of each output record; shape (n,).

    ``topic``: as `txn_processor.outputs` numbers them.
    """
    of_topic = np.uint64((topic + 1) * _TOPIC_FACTOR & ((1 << 64) - 1))
    return hash_ragged(keys, _KEY_SEED) * np.uint64(3) ^ hash_ragged(values, _VALUE_SEED) ^ of_topic


@dataclass(slots=True)
class _Group:
    """A group, and how many of its outputs were not seen yet."""

    said: Executed
    left: int


class Confirmations:
    """Groups that wait for their outputs to be seen, in order.

    Outputs may be seen before the worker's message about them has come. Two equal outputs are seen
    twice; a copy that another pipeline has written counts as well, because it is the same bytes.
    """

    def __init__(self) -> None:
        """Nothing was handed to Spark yet."""
        self._groups: deque[_Group] = deque()
        self._waiting: dict[int, deque[_Group]] = {}
        self._early: Counter[int] = Counter()

    def __len__(self) -> int:
        """Return how many groups wait."""
        return len(self._groups)

    def add(self, said: Executed) -> list[Executed]:
        """Note a group; return the groups that are confirmed now."""
        group = _Group(said, 0)
        for output in np.frombuffer(said.outputs, np.uint64).tolist():
            if self._early.get(output):
                self._drop_early(output)
            else:
                group.left += 1
                self._waiting.setdefault(output, deque()).append(group)
        self._groups.append(group)
        return self._confirmed()

    def see(self, outputs: Iterable[int]) -> list[Executed]:
        """Note outputs that are in Kafka, by their hashes; return the groups confirmed by them."""
        for output in outputs:
            groups = self._waiting.get(output)
            if groups is None:
                self._early[output] += 1
                continue
            groups.popleft().left -= 1
            if not groups:
                del self._waiting[output]
        if len(self._early) > _EARLY_MAX:
            self._early.clear()  # of others: this gear follows
        return self._confirmed()

    def _drop_early(self, output: int) -> None:
        self._early[output] -= 1
        if not self._early[output]:
            del self._early[output]

    def _confirmed(self) -> list[Executed]:
        found: list[Executed] = []
        while self._groups and not self._groups[0].left:
            found.append(self._groups.popleft().said)
        return found
