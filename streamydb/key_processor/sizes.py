"""The sizes of values: the only shard knows its own exactly; several know all of them alike."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from streamydb.frames.blobs import BlobStore
from streamydb.frames.messages import ValueSizes
from streamydb.frames.sizes import Sizes, SizesState
from streamydb.frames.table import Ragged
from streamydb.key_processor.state import ShardState
from streamydb.key_processor.values import ShardValues
from streamydb.planner.core import SizedSlots

Hashes = npt.NDArray[np.uint64]


class OwnSizes:
    """The sizes of the only shard: it reads the values to know them."""

    known = True

    def __init__(self, values: ShardValues) -> None:
        self._values = values

    def of(self, _: Hashes, keys: Ragged, bytes_max: int) -> SizedSlots:
        """As `SlotSizes.of`; values of up to ``bytes_max`` bytes come with their sizes."""
        values = self._values.read_within(keys, bytes_max)
        if values is None:
            return SizedSlots(self._values.sizes(keys))
        return SizedSlots(self._values.sizes_of(values), values)

    def hear(self, classes: bytes) -> None:
        """Nobody else has values."""

    def hear_all(self, parts: Iterable[ValueSizes]) -> None:
        """Nobody else has values."""

    def announcement(self) -> list[ValueSizes]:
        """Nobody else plans."""
        return []

    def save(self) -> None:
        """Nothing is kept."""


class SharedSizes:
    """The sizes that all shards know alike, as `frames.sizes` has them."""

    def __init__(
        self, meta: ShardState, state: SizesState, values: ShardValues, blobs: BlobStore, shard: int
    ) -> None:
        """Continue from the ``state`` of ``shard``, which has ``values``."""
        self._meta = meta
        self._shard = shard
        self._values = values
        self._sizes = Sizes(state, blobs)

    @property
    def known(self) -> bool:
        """Return True if a plan can be made: the sizes of all shards' first values are known."""
        return self._sizes.state.known

    def of(self, hashes: Hashes, _: Ragged, __: int) -> SizedSlots:
        """As `SlotSizes.of`."""
        return SizedSlots(self._sizes.of(hashes))

    def hear(self, classes: bytes) -> None:
        """Take in the sizes of written values (`frames.sizes.tells`)."""
        self._sizes.hear(classes)

    def hear_all(self, parts: Iterable[ValueSizes]) -> None:
        """Take in what shards announce of all their values."""
        for part in parts:
            self._sizes.hear_from(part, self._meta.config.shards)

    def announcement(self) -> list[ValueSizes]:
        """Return the sizes of the values here, for all shards, while they are not known."""
        incarnation = self._meta.config.incarnation
        return [*self._sizes.announcement(self._values.pieces(), incarnation, self._shard)]

    def save(self) -> None:
        """Put what has changed into the state."""
        self._sizes.save()


ShardSizes: TypeAlias = OwnSizes | SharedSizes
"""The sizes within one step."""


def sizes_of_shard(
    meta: ShardState, values: ShardValues, blobs: BlobStore, shard: int, *, begins: bool
) -> ShardSizes:
    """Return the sizes for a shard with this state; ``begins``: of a new database."""
    if meta.config.shards == 1:
        return OwnSizes(values)
    meta.sizes = meta.sizes or SizesState(known=begins)
    return SharedSizes(meta, meta.sizes, values, blobs, shard)
