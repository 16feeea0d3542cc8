"""The pace of the follower: a file that is there exactly while the driver wants it slow."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace

import pytest

from streamydb.pipeline.realtime import pace
from streamydb.pipeline.realtime.pace import Pace, keep_pace
from tests.support.seeds import seeds


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(20, 8)))
def test_micro_batches_wait_exactly_while_the_driver_wants_it(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice, looks = random.Random(seed), list[float]()
    monkeypatch.setattr(pace, "_WAIT_S_MAX", 1.0)
    clock = [0.0]

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        clock[0] += seconds

    # Not `time.sleep` itself: other threads of the process sleep, too.
    monkeypatch.setattr(pace, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: clock[0]))
    (tmp_path / "paced").touch()  # a driver was killed
    driver, slow = Pace(tmp_path), False
    for _ in range(30):
        if dice.random() < 0.7:
            slow = dice.random() < 0.5
            (driver.slow_down if slow else driver.hurry)()
        looks.clear()
        keep_pace(tmp_path)
        assert bool(looks) is slow
        assert sum(looks) < 1.1
