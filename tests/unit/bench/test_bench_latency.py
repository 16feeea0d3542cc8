"""Arrivals of results, and how long a client lingers."""

from __future__ import annotations

import random

import numpy as np
import pytest

from bench.appending import linger_ms
from bench.latency import Arrivals
from bench.load_profile import LoadProfile
from streamydb.frames.addresses import SPARE_BYTES
from streamydb.frames.table import Ragged
from streamydb.kafka.columns import OneRecord, RecordColumns
from tests.support.seeds import seeds


def _arrivals(first: int, count: int, prefix: bytes) -> Arrivals:
    """Arrivals that read nothing."""
    found = Arrivals.__new__(Arrivals)
    found._first, found._prefix = first, Ragged.of([prefix, bytes(SPARE_BYTES)]).texts()
    found.at, found.missing = np.full(count, np.nan), count
    return found


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(30, 10)))
def test_the_first_arrival_of_each_result_counts(seed: int) -> None:
    dice = random.Random(f"arrivals {seed}")
    prefix, first, count = dice.choice([b"t", b"a-long-prefix-"]), dice.choice([0, 95]), 20
    arrivals, expected = _arrivals(first, count, prefix), dict[int, float]()
    for batch in range(12):
        numbers = [dice.randint(max(0, first - 3), first + count + 3) for _ in range(5)]
        keys: list[bytes | None] = [prefix + b"%d" % number for number in numbers]
        keys += dice.sample([None, b"", prefix, b"x1", prefix + b"1x", prefix + b"-1"], 2)
        dice.shuffle(keys)
        records = [OneRecord(0, row, key, b"{}") for row, key in enumerate(keys)]
        arrivals.note(RecordColumns.of(records), float(batch))
        for number in numbers:
            if 0 <= number - first < count:
                expected.setdefault(number - first, float(batch))
        assert {n: at for n, at in enumerate(arrivals.at) if not np.isnan(at)} == expected
        assert arrivals.missing == count - len(expected)


def test_a_client_of_a_high_rate_lingers() -> None:
    assert [linger_ms(rate) for rate in (1.0, 500.0, 1_999.0)] == [0, 0, 0]
    assert linger_ms(2_000.0) == linger_ms(100_000.0) > 0


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(30, 10)))
def test_a_rate_rises_evenly_and_then_stays(seed: int) -> None:
    dice = random.Random(f"rising {seed}")
    rate, rise_s = dice.uniform(50, 5_000), dice.choice([0.0, dice.uniform(1, 9)])
    seconds = rise_s + dice.uniform(1, 9)
    due_s = LoadProfile.rising(rate, rise_s, seconds).due_s()
    assert len(due_s) == pytest.approx(rate * (seconds - rise_s / 2), abs=1)
    assert due_s[0] == 0.0
    assert due_s[-1] < seconds
    steady = due_s[due_s >= rise_s]
    assert np.allclose(np.diff(steady), 1 / rate, rtol=1e-3, atol=1e-9)
    if rise_s:
        halfway = np.searchsorted(due_s, rise_s / 2)
        assert halfway == pytest.approx(rate * rise_s / 8, abs=1), "a quarter of what rises"
