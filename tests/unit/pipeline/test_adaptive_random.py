"""Whatever micro-batches and queries come, a query has the setting that the last batch asks for."""

from __future__ import annotations

import random

import pytest
from py4j.protocol import Py4JError

from streamydb.pipeline.adaptive import COMPILED, FACTORY_MODE, INTERPRETED, AdaptiveSettings


class Query:
    """The settings of a query; some cannot be changed."""

    def __init__(self, *, deaf: bool) -> None:
        self.deaf = deaf
        self.tried = 0
        self.settings: dict[str, str] = {}

    def set_conf(self, name: str, value: str) -> None:
        self.tried += 1
        if self.deaf:
            raise Py4JError("no such method")
        assert self.settings.get(name) != value  # it is told what is new
        self.settings[name] = value


@pytest.mark.parametrize("seed", range(40))
def test_a_query_has_what_the_last_batch_asks_for(seed: int) -> None:
    dice = random.Random(seed)
    adaptive = AdaptiveSettings()
    adaptive.note(dice.randint(0, 20_000))
    for _ in range(dice.randint(1, 4)):
        query = Query(deaf=dice.random() < 0.3)
        adaptive.follow(query.set_conf)
        assert query.tried == 0
        for number in range(1, dice.randint(2, 30)):
            records = dice.choice([0, 1, 10_000, 10_001, 200_000])
            adaptive.note(records)
            wanted = INTERPRETED if records <= 10_000 else COMPILED
            assert query.settings == ({} if query.deaf else {FACTORY_MODE: wanted})
            assert query.tried == 1 if query.deaf else query.tried <= number
