"""The base in a shard's local files: whole or not there, and not changed by what comes after."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import msgspec
import numpy as np
import pytest

from streamydb.columns.plans import Life
from streamydb.columns.scans import HEAD_BYTES
from streamydb.columns.shards import ShardConfig
from streamydb.errors import ConfigurationError, InvariantViolation
from streamydb.key_processor.base import decode_base
from streamydb.key_processor.core import KeyTransactionProcessor
from streamydb.key_processor.memory import MemoryBlobs
from streamydb.local.shard_files import FileIdTables, LmdbValues, shard_folder
from streamydb.pipeline.realtime.core import (
    NotForThisGear,
    OpenBase,
    RealTimeShard,
    Surroundings,
    TailRecord,
)
from streamydb.pipeline.realtime.files import opened_base
from streamydb.txn_processor import outputs as o
from streamydb.txn_processor.core import TransactionProcessor
from streamydb.txn_processor.parser import parse_feedback, parse_transactions

CONFIG = ShardConfig("bank", "incarnation", 1, 1, 1_000)


class MicroBatches:
    """The micro-batch gear of one shard, with its files under ``local``."""

    def __init__(self, local: Path, config: ShardConfig = CONFIG) -> None:
        self.folder = shard_folder(local, config.database, config.incarnation, 0)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.config = config
        self.blobs = MemoryBlobs()
        self.processor = TransactionProcessor(config, config.shards, 1)
        self.offsets = count()

    def execute(self, *transactions: dict[str, object]) -> None:
        """Execute transactions as one plan, and apply its feedback."""
        feedback = self.feed(self.grants(*transactions))
        while feedback:
            feedback = self.feed([r.block for r in parse_feedback(feedback, self.config)])

    def grants(self, *transactions: dict[str, object]) -> list[bytes]:
        """Return the blocks of records."""
        values = [msgspec.json.encode(transaction) for transaction in transactions]
        offsets = np.array([next(self.offsets) for _ in values], np.int64)
        routed = parse_transactions(
            np.zeros(len(values), np.int32), offsets, offsets + 1_000, values, 1
        )
        return [each.block for each in routed]

    def feed(self, blocks: list[bytes]) -> list[bytes]:
        """Take a step; return the feedback of what it leads to."""
        with closing(FileIdTables(self.folder)) as tables:
            values = LmdbValues(self.folder)
            shard = KeyTransactionProcessor(
                self.config, 0, self.blobs, values, tables, Life("life")
            )
            granted = [emitted.block for emitted in shard.step(blocks)]
        records = [o.formatted(item, "bank") for item in self.processor.step(granted)]
        return [
            value for each in records if each.topic == o.FEEDBACK for value in each.values.tolist()
        ]


def put(txn: str, key: str, value: object, **more: object) -> dict[str, object]:
    return {"id": txn, "updates": [{"op": "put", "key": key, "value": value, **more}]}


@pytest.fixture
def gear(tmp_path: Path) -> Iterator[MicroBatches]:
    made = MicroBatches(tmp_path)
    yield made
    LmdbValues.close(made.folder)


def opened(tmp_path: Path, config: ShardConfig = CONFIG) -> OpenBase:
    found = opened_base(tmp_path, config)
    assert found is not None
    return found


def text(base: OpenBase, key: bytes) -> bytes | None:
    (item,) = base.values.load([key])
    return None if item is None else item[HEAD_BYTES:]


def test_a_base_has_what_was_executed_and_nothing_that_came_later(
    gear: MicroBatches, tmp_path: Path
) -> None:
    gear.execute(put("t1", "a", "one"), put("t2", "b", "two", ttl_ms=50))
    base = opened(tmp_path)
    assert (base.base.state.seq, base.base.position) == (2, 2)
    gear.execute(put("t3", "a", "three"), put("t4", "c", "four"))
    assert text(base, b"a") == b'"one"'
    assert text(base, b"c") is None
    assert [key for key, _ in base.values.items(b"")] == [b"a", b"b"]
    assert len(list(base.values.ends(b""))) == 1
    newer = opened(tmp_path)
    assert (newer.base.state.seq, newer.base.position) == (4, 4)
    assert text(newer, b"a") == b'"three"'
    for each in (base, newer):
        each.values.close()


def test_the_gear_goes_on_where_the_base_ends(gear: MicroBatches, tmp_path: Path) -> None:
    gear.execute(put("t1", "a", 1))
    config = msgspec.structs.replace(CONFIG, incarnation="gear")
    shard = RealTimeShard(Surroundings(config, Life("gear"), 1), opened(tmp_path))
    shard.play(leads=True, covered=1)
    add = {"op": "add", "key": "a", "by": 2}
    transaction = msgspec.json.encode({"id": "t2", "updates": [add], "reads": ["a"]})
    group = shard.take([TailRecord(0, 1_000, b"read before"), TailRecord(1, 1_001, transaction)])
    results = [each for each in group.outputs if each.topic == o.RESULTS]
    assert b'"reads":{"a":3}' in (results[0].values.tolist()[0] or b"")
    assert group.seq == 2
    assert group.resolved is not None
    with pytest.raises(NotForThisGear, match="offset 2 was used before the base"):
        shard.take([TailRecord(2, 1_002, msgspec.json.encode(put("t1", "a", 1)))])
    assert shard.position == 2, "the other gear goes on with that record"
    gear.execute(msgspec.json.decode(transaction))
    assert shard.rebase(opened(tmp_path))
    assert (shard.base_seq, len(shard.tail.records)) == (2, 0)
    shard.rebase(opened(tmp_path))


def test_a_base_of_another_history_is_refused(gear: MicroBatches, tmp_path: Path) -> None:
    gear.execute(put("t1", "a", 1))
    config = msgspec.structs.replace(CONFIG, incarnation="gear")
    shard = RealTimeShard(Surroundings(config, Life("gear"), 1), opened(tmp_path))
    shard.play(leads=True, covered=1)
    shard.take([TailRecord(1, 1_001, msgspec.json.encode(put("t2", "a", 2)))])
    gear.execute(put("other", "a", 3))
    with pytest.raises(InvariantViolation, match="or to other values"):
        shard.rebase(opened(tmp_path))


def test_there_is_no_base_while_the_file_is_elsewhere(gear: MicroBatches, tmp_path: Path) -> None:
    assert opened_base(tmp_path, CONFIG) is None
    gear.execute(put("t1", "a", 1))
    values = LmdbValues(gear.folder)
    values.apply(values.position(), (99, "elsewhere"), [], [])
    assert opened_base(tmp_path, CONFIG) is None
    other = msgspec.structs.replace(CONFIG, digest_interval=7)
    assert opened_base(tmp_path, other) is None


def test_there_is_no_base_without_its_ids(gear: MicroBatches, tmp_path: Path) -> None:
    gear.execute(put("t1", "a", 1))
    shutil.rmtree(gear.folder / "ids")
    assert opened_base(tmp_path, CONFIG) is None


@pytest.mark.parametrize(
    "config",
    [
        msgspec.structs.replace(CONFIG, partitions=2), msgspec.structs.replace(CONFIG, shards=2),
        msgspec.structs.replace(CONFIG, grouping="single"),
    ],
)
def test_other_databases_have_none(config: ShardConfig, tmp_path: Path) -> None:
    assert opened_base(tmp_path, config) is None


def test_a_base_of_another_release_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        decode_base(b"\xc1")
