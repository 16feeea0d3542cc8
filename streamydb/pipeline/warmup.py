"""Compile every kernel before the first batch, in one process: workers find them in the cache."""

from __future__ import annotations

from typing import Final

import numpy as np

from streamydb.frames import program as p
from streamydb.frames.plans import Life
from streamydb.frames.readers import TO_EXECUTOR, TO_SHARD
from streamydb.frames.segments import (
    Entries,
    fences_of,
    found_in,
    merged,
    packed,
    pages_of,
    unpacked,
)
from streamydb.frames.shards import ShardConfig
from streamydb.frames.table import Ragged
from streamydb.key_processor.core import KeyTransactionProcessor
from streamydb.key_processor.memory import MemoryBlobs, MemoryIdTables, MemoryValues
from streamydb.parser.core import parse_feedback, parse_transactions
from streamydb.pipeline.realtime import readback
from streamydb.txn_processor import outputs as o
from streamydb.txn_processor.core import TransactionProcessor
from streamydb.txn_processor.kernel import NewWrites, Notes, write_slots
from streamydb.txn_processor.outputs import open_output, output_block

_PAYLOADS: Final = (
    b'{"id":"a","updates":[{"op":"add","key":"x","by":1},{"op":"put","key":"y","value":"t"}]}',
    b'{"id":"b","asserts":{"x":1},"reads":["x","y"],"updates":[{"op":"delete","key":"y"}]}',
    b'{"id":"b","asserts":{"x":1},"reads":["x","y"],"updates":[{"op":"delete","key":"y"}]}',
    b'{"id":"c","checks":[{"key":"x","ge":9}],"updates":[{"op":"append","key":"l","value":1}]}',
    b'{"id":"d","updates":[{"op":"append","key":"l","value":1}]}',
    b'{"id":"e","checks":[{"range":{"prefix":"x"},"count":1}],"reads":[{"range":{"prefix":"y"}}]}',
    b'{"marker":5,"partitions":2,"sequencer":"s"}',
    b"not a transaction",
)


def warm_up() -> None:
    """Run a small database through the stages, with one shard and with two; drop the results."""
    for shards in (1, 2):
        config = ShardConfig("warm-up", "warm-up", shards, shards, 4)
        stores = [(MemoryBlobs(), MemoryValues(), MemoryIdTables()) for _ in range(shards)]
        feedback: list[bytes] = []
        for step in range(3):
            feedback = _step(config, stores, feedback, step)
    _settle()
    _write()
    readback.compile_kernels()


def _write() -> None:
    """Run no writes through the kernel that takes those of procedures."""
    none = np.empty(0, np.int64)
    seen = np.empty(0, p.SEEN)
    notes = Notes(np.empty(0, p.WRITE), seen, seen, np.zeros(3, np.int64))
    new = NewWrites(none, none, np.empty(0, np.uint8), none, none)
    write_slots(new, none, np.empty(0, p.SLOT), notes)


def _settle() -> None:
    """Run a value through the kernels of segments; what they read of a file cannot be written."""
    one = Entries(Ragged.of([b"x"]), Ragged.of([b"an item"]))
    pages, starts = packed(merged(one, one))
    data, fences = np.frombuffer(pages.tobytes(), np.uint8), fences_of(one, starts)
    found_in(data, pages_of(fences, one.keys), one.keys)
    merged(unpacked(data, 0, 1), one)


def _step(
    config: ShardConfig,
    stores: list[tuple[MemoryBlobs, MemoryValues, MemoryIdTables]],
    feedback: list[bytes],
    step: int,
) -> list[bytes]:
    n = len(_PAYLOADS)
    inputs: list[list[bytes]] = [[] for _ in stores]
    for routed in parse_feedback(feedback, config):
        inputs[routed.shard].append(routed.block)
    for partition in range(config.partitions):
        columns = (
            np.full(n, partition, np.int32),
            np.arange(n * step, n * step + n),
            np.arange(n) + 10 * step,
        )
        for routed in parse_transactions(*columns, _PAYLOADS, config.shards):
            inputs[routed.shard].append(routed.block)
    granted: list[list[bytes]] = [[] for _ in stores]
    for number, store in enumerate(stores):
        shard = KeyTransactionProcessor(config, number, *store, Life("warm-up"))
        for emitted in shard.step(TO_SHARD.each(inputs[number])):
            granted[emitted.proc].append(emitted.message.block())
    fed: list[bytes] = []
    for blocks in granted:
        for item in TransactionProcessor(config, config.shards, 1).step(TO_EXECUTOR.each(blocks)):
            records = open_output(output_block(item), config.database)
            if records.topic == o.FEEDBACK:
                fed += records.values.tolist()
    return fed
