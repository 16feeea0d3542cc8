"""The stages of the query in one thread, without Kafka and Spark,
and what each task of them takes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.engine import cores
from streamydb.frames.plans import Life
from streamydb.frames.readers import TO_EXECUTOR, TO_SHARD
from streamydb.frames.shards import ShardConfig
from streamydb.frames.table import Ragged, chunk_bounds
from streamydb.key_processor.core import KeyTransactionProcessor
from streamydb.key_processor.memory import MemoryBlobs, MemoryIdTables, MemoryValues
from streamydb.key_processor.process_cache import ProcessCache
from streamydb.local.shard_files import LmdbValues
from streamydb.parser.core import Routed, parse_feedback, parse_transactions
from streamydb.txn_processor import outputs as o
from streamydb.txn_processor.core import TransactionProcessor
from streamydb.txn_processor.outputs import open_output, output_block

__all__ = ["EXECUTE", "FORMAT", "PARSE", "STAGES", "STEP", "InMemory", "Times"]

PARSE: Final = "parse"
STEP: Final = "sort, plan, grant"
EXECUTE: Final = "execute"
FORMAT: Final = "format"
STAGES: Final = (PARSE, STEP, EXECUTE, FORMAT)

Times = dict[str, list[float]]
"""By stage, the seconds of processor time that each of its tasks took."""

_DATABASE: Final = "bench"
_COMMITTED: Final = b'"status":"committed"'
_RUN_BYTES: Final = 3 << 20  # as the pipeline cuts what it parses


class InMemory:
    """A database whose log and state are in memory; its stages run one task after the other."""

    def __init__(self, shards: int, folder: Path | None = None) -> None:
        """Begin empty; ``folder``: where LMDB keeps the values, a dict does it otherwise."""
        self.config = ShardConfig(_DATABASE, _DATABASE, shards, 1, 1_000_000)
        self._states = [
            (MemoryBlobs(), _values(folder, shard), MemoryIdTables()) for shard in range(shards)
        ]
        self._feedback: list[list[bytes]] = [[] for _ in range(shards)]
        self._results: list[Ragged] = []
        self._folder = folder
        self._cache = ProcessCache()
        self.offset = 0

    def close(self) -> None:
        """Close the files of the values."""
        if self._folder is not None:
            for shard in range(self.config.shards):
                LmdbValues.close(self._folder / str(shard))

    def run(self, payloads: list[bytes]) -> Times:
        """Execute a micro-batch of transactions."""
        times: Times = {stage: [] for stage in STAGES}
        blocks = self._parsed(payloads, times)
        grants: list[list[bytes]] = [[] for _ in blocks]
        for shard, (state, own) in enumerate(zip(self._states, blocks, strict=True)):
            if shard < cores():  # a process of its own begins with it; later ones share these
                self._cache.forget()
            with _task(times, STEP):
                shard_room = KeyTransactionProcessor(
                    self.config, shard, *state, Life(_DATABASE), cache=self._cache
                )
                for emitted in shard_room.step(TO_SHARD.each(own)):
                    grants[emitted.proc].append(emitted.message.block())
        self._feedback, self._results = [[] for _ in blocks], []
        shards = self.config.shards
        spread: list[list[Any]] = [[] for _ in blocks]
        for own in grants:
            with _task(times, EXECUTE):
                room = TransactionProcessor(self.config, shards, 1)
                for item in room.step(TO_EXECUTOR.each(own)):
                    spread[item.spread].append(item if shards == 1 else output_block(item))
        for items in spread:
            with _task(times, FORMAT):
                self._format(items)
        return times

    def committed(self) -> int:
        """How many transactions of the last batch were committed."""
        return sum(values.data.tobytes().count(_COMMITTED) for values in self._results)

    def _parsed(self, payloads: list[bytes], times: Times) -> list[list[bytes]]:
        """Parse feedback and transactions in as many tasks as there are shards, each."""
        shards = self.config.shards
        blocks: list[list[bytes]] = [[] for _ in range(shards)]
        for told in self._feedback:
            with _task(times, PARSE):
                _route(parse_feedback(told, self.config), blocks)
        for part in np.array_split(np.arange(len(payloads)), shards):
            values = Ragged.of([payloads[row] for row in part.tolist()])
            with _task(times, PARSE):
                for start, end in chunk_bounds(values.lengths(), _RUN_BYTES, len(values)):
                    offsets = self.offset + part[start:end]
                    found = parse_transactions(
                        np.zeros(len(offsets), np.int32),
                        offsets,
                        offsets // 100,
                        _own(values, start, end),
                        shards,
                        hashes=True,
                    )
                    _route(found, blocks)
        self.offset += len(payloads)
        return blocks

    def _format(self, items: Iterable[Any]) -> None:
        """Format a task's outputs, and keep the feedback among them for the next batch."""
        for item in items:
            one = self.config.shards == 1
            records = o.formatted(item, _DATABASE) if one else open_output(item, _DATABASE)
            if records.topic == o.RESULTS:
                self._results.append(records.values)
            if records.topic == o.FEEDBACK:
                self._feedback[records.partition] += records.values.tolist()


@contextmanager
def _task(times: Times, stage: str) -> Iterator[None]:
    """Time the body as a task of a stage."""
    begun = time.thread_time()
    yield
    times[stage].append(time.thread_time() - begun)


def _values(folder: Path | None, shard: int) -> Any:
    if folder is None:
        return MemoryValues()
    own = folder / str(shard)
    own.mkdir()
    return LmdbValues(own)


def _own(values: Ragged, start: int, end: int) -> Ragged:
    """A part of some texts, in a buffer of its own."""
    part = values.part(start, end)
    return part.take(np.arange(len(part)))


def _route(found: Iterator[Routed[Any]], blocks: list[list[bytes]]) -> None:
    for routed in found:
        blocks[routed.shard].append(routed.block)
