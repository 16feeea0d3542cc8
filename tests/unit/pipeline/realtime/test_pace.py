"""The pace of the follower: a file that is there exactly while the driver wants it slow, and looks
for data that are rare exactly then, whatever query there is. And how much it reads at once.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JError

from streamydb.pipeline.reads import FEW_RECORDS, OFTEN_S, RARELY_S, Reads
from streamydb.pipeline.realtime import pace
from streamydb.pipeline.realtime.pace import Pace, keep_pace
from tests.support.seeds import seeds


class Query:
    """A query that reads as it is told; ``fails``: Spark does not let it."""

    def __init__(self, *, fails: bool = False) -> None:
        self.seconds, self.records = 0.5, -1
        self.told = Counter[str]()
        self.fails = fails

    def look_every(self, seconds: float) -> None:
        self.told["looks"] += 1
        if self.fails:
            raise Py4JError("there is no such field")
        self.seconds = seconds

    def read_at_most(self, records: int) -> None:
        self.told["limits"] += 1
        if self.fails:
            raise Py4JError("there are no such limits")
        self.records = records


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(20, 8)))
def test_micro_batches_wait_exactly_while_the_driver_wants_it(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice, waits = random.Random(seed), list[float]()
    monkeypatch.setattr(pace, "_WAIT_S_MAX", 1.0)
    clock = [0.0]

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        clock[0] += seconds

    # Not `time.sleep` itself: other threads of the process sleep, too.
    monkeypatch.setattr(pace, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: clock[0]))
    (tmp_path / "paced").touch()  # a driver was killed
    query, reads, slow = Query(), Reads(100), False
    driver = Pace(tmp_path, reads)
    reads.follow(query)
    for _ in range(30):
        if dice.random() < 0.2:  # the query was started again
            query = Query()
            reads.follow(query)
        if dice.random() < 0.7:
            slow = dice.random() < 0.5
            (driver.slow_down if slow else driver.hurry)()
        waits.clear()
        keep_pace(tmp_path)
        assert bool(waits) is slow
        assert sum(waits) < 1.1
        assert query.seconds == (RARELY_S if slow else OFTEN_S)
        assert query.records == 100, "the pace has nothing to do with it"


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(10, 5)))
@pytest.mark.parametrize("case", ["given", "refused"])
def test_reads_stay_as_they_are_where_nobody_may_change_them(case: str, seed: int) -> None:
    dice, reads = random.Random(seed), Reads(100, is_given=case == "given")
    queries = [Query(fails=case == "refused") for _ in range(3)]
    for _ in range(20):
        dice.choice([reads.often, reads.rarely, lambda: reads.follow(dice.choice(queries))])()
    reads.follow(queries[0])
    reads.rarely()
    assert {query.seconds for query in queries} == {0.5}
    assert {query.records for query in queries} <= {-1, 100}
    told = sum((query.told for query in queries), Counter[str]())
    assert told["looks"] == (case == "refused"), "Spark was asked again"
    if case == "refused":
        assert {query.records for query in queries} == {-1}
        assert told["limits"] == 1, "Spark was asked again"


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(10, 5)))
def test_a_query_that_could_not_be_told_once_gets_the_next_choice(seed: int) -> None:
    dice, reads, query = random.Random(seed), Reads(FEW_RECORDS + 1), Query()
    reads.follow(query)
    reads.few()
    for _ in range(dice.randrange(1, 4)):
        query.fails = True  # its JVM does not answer for a moment
        dice.choice([reads.many, reads.often, reads.rarely])()
    query.fails = False
    reads.many()
    reads.rarely()
    assert (query.records, query.seconds) == (FEW_RECORDS + 1, RARELY_S)


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(20, 8)))
def test_the_newest_choice_holds_for_every_query_that_follows(seed: int) -> None:
    dice = random.Random(seed)
    records_max = dice.choice([20_000, FEW_RECORDS, 200_000])
    reads, query, few, rare = Reads(records_max), Query(), False, False
    reads.follow(query)
    for _ in range(20):
        step = dice.randrange(3)
        if step == 0:
            few = dice.random() < 0.5
            (reads.few if few else reads.many)()
        elif step == 1:
            rare = dice.random() < 0.5
            (reads.rarely if rare else reads.often)()
        else:
            query = Query()
            reads.follow(query)
        assert query.records == (min(FEW_RECORDS, records_max) if few else records_max)
        assert query.seconds == (RARELY_S if rare else OFTEN_S)
