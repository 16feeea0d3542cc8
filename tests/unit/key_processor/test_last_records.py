"""Records are opened again unless all bytes are equal; each shard has its own ids and payloads."""

from __future__ import annotations

import random

import numpy as np
import pytest

from streamydb.frames.protocol import BlockReader
from streamydb.frames.record_messages import LogRecords
from streamydb.frames.record_rows import CompiledRecords
from streamydb.key_processor.inbox import LastRecords
from streamydb.parser.compile import compile_records
from streamydb.parser.core import parse_transactions
from tests.support.seeds import seeds

SHARDS = 3


class Batch:
    """A micro-batch: of each shard the blocks of records, from some tasks, and the log itself."""

    def __init__(self, dice: random.Random, partitions: int) -> None:
        self.places: list[tuple[int, int, bytes]] = []
        self.blocks: list[list[bytes]] = [[] for _ in range(SHARDS)]
        hashes = dice.random() < 0.5
        for partition in range(partitions):
            start = dice.randrange(100)
            for _ in range(dice.randint(1, 4)):
                end = start + dice.choice([0, 1, 7, 50])
                self._read(partition, np.arange(start, end), dice, hashes=hashes)
                start = end

    def _read(
        self, partition: int, offsets: np.ndarray, dice: random.Random, *, hashes: bool
    ) -> None:
        """One task reads these offsets."""
        values = [
            dice.choice([
                b'{"id":"t%d","updates":[{"op":"put","key":"k%d","value":1}]}',
                b'{"id":"t%d","reads":["k%d"]}', b"broken %d %d",
            ]) % (dice.randrange(10**6), dice.randrange(50))
            for _ in offsets
        ]  # fmt: skip
        self.places += zip([partition] * len(values), offsets.tolist(), values, strict=True)
        partitions = np.full(len(values), partition, np.int32)
        times = offsets * 10
        for routed in parse_transactions(partitions, offsets, times, values, SHARDS, hashes=hashes):
            self.blocks[routed.shard].append(routed.block)

    def given(self, shard: int, dice: random.Random) -> list[LogRecords]:
        """What a shard is given, in any order."""
        blocks = dice.sample(self.blocks[shard], len(self.blocks[shard]))
        return [*BlockReader(LogRecords).each(blocks)]

    def expected(self) -> CompiledRecords:
        """All records, compiled as they are, by partition and offset."""
        places = sorted(self.places)
        columns = zip(*places, strict=True) if places else ((), (), ())
        partitions, offsets, values = (list(column) for column in columns)
        numbers = np.array(offsets, np.int64)
        return compile_records(np.array(partitions, np.int32), numbers, numbers * 10, values)


def in_order(tables: list[CompiledRecords]) -> CompiledRecords:
    """All records, by partition and offset."""
    table = CompiledRecords.concat(tables)
    return table.take(np.lexsort((table.offset, table.partition)))


def as_bytes(table: CompiledRecords, *, home: bool) -> dict[str, bytes]:
    arrays = table.flatten().items()
    return {
        name: array.tobytes() for name, array in arrays
        if (name.startswith("home") or name == "id1") is home
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(seeds(30, 10)))
def test_every_shard_gets_what_was_compiled_whoever_was_there_before(seed: int) -> None:
    dice, last = random.Random(seed), LastRecords()
    batches = [Batch(dice, dice.choice([1, 1, 2])) for _ in range(3)]
    batches = [batch for batch in batches if batch.places]
    batch, before, shared, kept = batches[0], None, 0, 0
    for _ in range(20):
        shard = dice.randrange(SHARDS)
        if dice.random() < 0.2:
            batch = dice.choice(batches)
        if dice.random() < 0.1:
            last.forget()
            before = None
        tables = last.of(batch.given(shard, dice), SHARDS)
        expected = batch.expected()
        found = in_order(tables)
        assert as_bytes(found, home=False) == as_bytes(expected, home=False)
        counts, own = found.home
        assert sum(counts) == len(own)
        here = expected.take(np.flatnonzero(counts))
        assert as_bytes(found.take(np.flatnonzero(counts)), home=True) == as_bytes(here, home=True)
        assert not found.id1[counts == 0].any()
        if len({partition for partition, _, _ in batch.places}) == 1:
            assert len(tables) == 1
        arrays = [table.offset for table in tables]
        if before is not None and before[0] is batch:
            shared += 1
            kept += all(map(lambda one, other: one is other, arrays, before[1]))
        before = batch, arrays
    assert kept == shared > 0, "what is equal is opened once"


def test_all_shards_together_have_every_home_once() -> None:
    dice, last = random.Random(1), LastRecords()
    batch = Batch(dice, 2)
    counts = [
        in_order(last.of(batch.given(shard, dice), SHARDS)).home.counts for shard in range(SHARDS)
    ]
    assert np.sum(counts, axis=0).tolist() == [1] * len(batch.places)


def test_a_single_shard_keeps_nothing() -> None:
    values = [b'{"id":"t","reads":["k"]}']
    place = np.zeros(1, np.int32), np.arange(1), np.arange(1)
    (routed,) = parse_transactions(*place, values, 1)
    last = LastRecords()
    told = [BlockReader(LogRecords).read(routed.block)]
    one, other = (last.of(told, 1)[0] for _ in range(2))
    assert one.offset is not other.offset
    assert last.of([], 1) == last.of([], 2) == []
