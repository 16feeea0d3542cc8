"""Whatever micro-batches and queries come, a query has the settings that the last batch asks
for.
"""

from __future__ import annotations

import random

import pytest
from py4j.protocol import Py4JError

from streamydb.pipeline.adaptive import (
    COMPILED,
    FACTORY_MODE,
    INTERPRETED,
    SHUFFLE_PARTITIONS,
    AdaptiveSettings,
    BatchSize,
)
from tests.support.seeds import seeds


class Query:
    """The settings of a query; some cannot be changed."""

    def __init__(self, shards: int, *, deaf: bool) -> None:
        self.deaf = deaf
        self.tried = 0
        self.settings = {FACTORY_MODE: "", SHUFFLE_PARTITIONS: str(shards)}

    def set_conf(self, name: str, value: str) -> None:
        self.tried += 1
        if self.deaf:
            raise Py4JError("no such method")
        assert self.settings[name] != value  # it is told what is new
        self.settings[name] = value


@pytest.mark.parametrize("seed", range(seeds(40, 13)))
def test_a_query_has_what_the_last_batch_asks_for(seed: int) -> None:
    dice = random.Random(seed)
    adaptive = AdaptiveSettings()
    adaptive.note(BatchSize(dice.randint(0, 20_000), 0, 0))
    for _ in range(dice.randint(1, 4)):
        shards = dice.choice([1, 2, 8])
        given = dice.choice([(), (), (FACTORY_MODE,)])
        query = Query(shards, deaf=dice.random() < 0.3)
        before, mode = dict(query.settings), ""
        adaptive.follow(query.set_conf, shards, given)
        assert query.tried == 0
        for _ in range(1, dice.randint(2, 30)):
            records = dice.choice([0, 1, 4_000, 4_001, 8_000, 8_002, 10_000, 10_001, 200_000])
            executing_us = dice.choice([0, 20_000, 20_001, 900_000])
            transactions = dice.choice([0, records // 2, records])
            adaptive.note(BatchSize(records, transactions, executing_us))
            small = 1 <= transactions <= 4_000 and executing_us <= 20_000
            if transactions:
                mode = INTERPRETED if records <= 10_000 else COMPILED
            wanted = {FACTORY_MODE: mode, SHUFFLE_PARTITIONS: "1" if small else str(shards)}
            if query.deaf:
                assert query.tried <= 1
                wanted = before
            assert query.settings == wanted | {name: before[name] for name in given}
