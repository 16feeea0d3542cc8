"""The pace of the follower: a file that is there exactly while the driver wants it slow, and looks
for data that are rare exactly then, whatever query there is.
"""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JError

from streamydb.pipeline.looks import OFTEN_S, RARELY_S, Looks
from streamydb.pipeline.realtime import pace
from streamydb.pipeline.realtime.pace import Pace, keep_pace
from tests.support.seeds import seeds


class Query:
    """A query that looks as often as it is told; ``fails``: Spark does not let it."""

    def __init__(self, *, fails: bool = False) -> None:
        self.seconds = 0.5
        self.told = 0
        self._fails = fails

    def look_every(self, seconds: float) -> None:
        self.told += 1
        if self._fails:
            raise Py4JError("there is no such field")
        self.seconds = seconds


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
    query, looks, slow = Query(), Looks(), False
    driver = Pace(tmp_path, looks)
    looks.follow(query)
    for _ in range(30):
        if dice.random() < 0.2:  # the query was started again
            query = Query()
            looks.follow(query)
        if dice.random() < 0.7:
            slow = dice.random() < 0.5
            (driver.slow_down if slow else driver.hurry)()
        waits.clear()
        keep_pace(tmp_path)
        assert bool(waits) is slow
        assert sum(waits) < 1.1
        assert query.seconds == (RARELY_S if slow else OFTEN_S)


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(10, 5)))
@pytest.mark.parametrize("case", ["given", "refused"])
def test_looks_stay_as_they_are_where_nobody_may_change_them(case: str, seed: int) -> None:
    dice, looks = random.Random(seed), Looks(is_given=case == "given")
    queries = [Query(fails=case == "refused") for _ in range(3)]
    for _ in range(20):
        dice.choice([looks.often, looks.rarely, lambda: looks.follow(dice.choice(queries))])()
    looks.follow(queries[0])
    looks.rarely()
    assert {query.seconds for query in queries} == {0.5}
    assert sum(query.told for query in queries) == (case == "refused"), "Spark was asked again"
