"""The micro-batch gear of one shard on real local files, without Spark: for tests."""

from __future__ import annotations

from contextlib import closing
from itertools import count
from pathlib import Path

import msgspec
import numpy as np

from streamydb.frames.plans import Life
from streamydb.frames.readers import TO_SHARD
from streamydb.frames.shards import ShardConfig
from streamydb.key_processor.core import KeyTransactionProcessor
from streamydb.key_processor.memory import MemoryBlobs
from streamydb.local.id_files import FileIdTables
from streamydb.local.shard_files import LmdbValues, shard_folder
from streamydb.parser.core import parse_feedback, parse_transactions
from streamydb.txn_processor import outputs as o
from streamydb.txn_processor.core import TransactionProcessor

__all__ = ["CONFIG", "MicroBatches", "put"]

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
            granted = [emitted.message for emitted in shard.step(TO_SHARD.each(blocks))]
        records = [o.formatted(item, "bank") for item in self.processor.step(granted)]
        return [
            value for each in records if each.topic == o.FEEDBACK for value in each.values.tolist()
        ]


def put(txn: str, key: str, value: object, **more: object) -> dict[str, object]:
    return {"id": txn, "updates": [{"op": "put", "key": key, "value": value, **more}]}
