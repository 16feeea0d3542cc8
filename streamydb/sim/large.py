"""Large values in a simulation: with limits that are small, so that what is large costs little.

For a share of the seeds, transactions write and touch values that are many bytes beside the limits:
some meet more than one transaction may, plans are cut by what they touch, grants and results come
in blocks. What is granted is held against the bound of its plan.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final
from unittest import mock

import msgspec

from streamydb import limits
from streamydb.columns import Table
from streamydb.key_processor import sizes, weighing
from streamydb.pipeline.blocks import open_block
from streamydb.pipeline.life import FIRST_SHAPE
from streamydb.pipeline.memory import MemoryBlobs
from streamydb.pipeline.shard import Meta
from streamydb.sim.flows import Divergence

__all__ = ["VALUES_BYTES", "GrantedBytes", "LargeValues", "forget_sizes", "small_limits"]

_TRANSACTION_BYTES: Final = 600
_BLOCK_BYTES: Final = 200
VALUES_BYTES: Final = (0, 150, 1_000, 1 << 26)
"""Bytes of the values that a plan may touch."""


@contextmanager
def small_limits() -> Iterator[None]:
    """Run the body with small limits."""
    patches = (
        mock.patch.object(limits, "TRANSACTION_VALUES_BYTES_MAX", _TRANSACTION_BYTES),
        mock.patch.object(limits, "BLOCK_BYTES_MAX", _BLOCK_BYTES),
        mock.patch.object(weighing, "COPIED_BYTES", 40),
        mock.patch.object(sizes, "SMALL_BYTES", 16),
        mock.patch.object(sizes, "SMALL_COUNTS", 4),
        mock.patch.multiple(sizes, _BUCKETS=1 << 10, _PAGE=1 << 7),
    )
    with ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield


@dataclass
class LargeValues:
    """Draws transactions that write large values, or touch many; ``rate``: how often."""

    random: random.Random
    keys: list[str]
    rate: float

    def wanted(self) -> bool:
        """Whether the next transaction is one of these."""
        return self.rate > 0 and self.random.random() < self.rate

    def parts(self) -> dict[str, Any]:
        """A transaction without its id."""
        rng = self.random
        found: dict[str, Any] = {}
        if rng.random() < 0.5:
            chosen = rng.sample(self.keys, rng.randint(1, len(self.keys)))
            found["checks"] = [{"key": key, "version": 0} for key in chosen if rng.random() < 0.02]
            found["reads"] = chosen
        chosen = rng.sample(self.keys, rng.randint(0, min(4, len(self.keys))))
        found["updates"] = [self._update(key) for key in chosen]
        return found

    def _update(self, key: str) -> dict[str, Any]:
        rng = self.random
        if rng.random() < 0.3:
            return {"op": "append", "key": key, "value": "y" * rng.choice([1, 30])}
        if rng.random() < 0.2:
            return {"op": "delete", "key": key}
        return {"op": "put", "key": key, "value": "x" * rng.choice([1, 10, 50, 120, 250])}


class GrantedBytes:
    """Adds up what the shards grant in one batch, to hold it against the bound of the plan.

    The system's own values (few, each of bounded size) are granted even to a transaction that meets
    too much; they do not count.
    """

    def __init__(self, blobs: MemoryBlobs) -> None:
        """``blobs``: of a shard before the batch."""
        data = blobs.get("meta")
        shape = None if data is None else msgspec.msgpack.decode(data, type=Meta).shape
        self._bound: int | None = None if data is None else (shape or FIRST_SHAPE).values_bytes_max
        self._total = 0
        self._alone = False

    def add(self, block: bytes) -> None:
        """A block that a shard sends."""
        header, arrays = open_block(block)
        if header["kind"] != "grant":
            return
        slots = Table.unflatten(arrays, "slots.")
        lengths = slots.texts["text"].lengths()
        if len(lengths) > 1 and int(lengths.sum()) > limits.BLOCK_BYTES_MAX:
            raise Divergence(f"a block grants {lengths.sum()} bytes of values")
        users = [not key.startswith(b"$") for key in slots.texts["key"].tolist()]
        self._total += int(lengths[users].sum()) if users else 0
        self._alone |= header["alone"]

    def judge(self, shards: int) -> None:
        """Compare: several shards know small values by their class only."""
        if self._bound is None:
            return
        bound = self._bound * (1 if shards == 1 else sizes.SMALL_BYTES // sizes.SMALL_COUNTS)
        if self._alone:
            bound = max(bound, shards * limits.TRANSACTION_VALUES_BYTES_MAX)
        if self._total > bound:
            raise Divergence(f"a plan was granted {self._total} bytes of values, of {bound}")


def forget_sizes(stores: Iterable[MemoryBlobs]) -> None:
    """Make of the states what an earlier release would have left, which knew no sizes."""
    for store in stores:
        data = store.get("meta")
        if data is None:
            continue
        meta = msgspec.msgpack.decode(data, type=Meta)
        for page in [] if meta.sizes is None else meta.sizes.pages:
            store.delete(f"sizes/{page}")
        meta.sizes = None
        store.put("meta", msgspec.msgpack.encode(meta))
