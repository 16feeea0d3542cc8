"""The worker's rest between two groups, under drawn loads by an invented clock."""

from __future__ import annotations

import random

import pytest

from streamydb.pipeline.realtime.core import TAIL_BYTES_MAX
from streamydb.pipeline.realtime.host import records_again, rest_s
from tests.support.seeds import seeds

REST_S_MAX = 0.004
LONG_REST_S_MAX = 0.012
MANY = 50


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(40, 13)))
def test_a_lone_record_never_waits_and_time_is_left_for_work(seed: int) -> None:
    dice = random.Random(seed)
    rate = dice.choice([5, 50, 500, 5_000])
    record_s = dice.choice([0.00001, 0.0001])
    group_s, now_s, ended_s, took_s = dice.choice([0.001, 0.003, 0.02]), 0.0, -1.0, 0.0
    arrivals = [dice.expovariate(rate) for _ in range(400)]
    due = [sum(arrivals[: i + 1]) for i in range(len(arrivals))]
    records, may_rest_s, rested_s = 0, 0.0, 0.0
    while due:
        pause_s = rest_s(took_s, now_s - ended_s, records)
        times, most_s = (1, REST_S_MAX) if records < MANY else (3, LONG_REST_S_MAX)
        assert 0 <= pause_s <= most_s
        assert not pause_s or now_s - ended_s < times * took_s, "it has been idle for long enough"
        now_s += pause_s
        rested_s += pause_s
        if due[0] > now_s:
            now_s = due[0]
        came = [at for at in due if at <= now_s]
        records = len(came)
        took_s = group_s + record_s * records
        now_s += took_s
        may_rest_s += took_s * (1 if records < MANY else 3)
        ended_s = now_s
        due = due[len(came) :]
    assert rested_s <= may_rest_s


def test_a_record_behind_a_long_group_waits_a_moment_only() -> None:
    assert rest_s(1.0, 0.0, MANY - 1) == REST_S_MAX
    assert rest_s(1.0, 0.0, MANY) == LONG_REST_S_MAX
    assert rest_s(0.001, 0.0, 1) == 0.001
    assert rest_s(0.001, 0.0, MANY) == 0.003
    assert rest_s(0.001, 0.0015, 1) == 0


def test_a_rebase_waits_while_the_gear_is_behind_but_not_until_the_tail_is_too_long() -> None:
    assert 0 < records_again(0, 0) == records_again(MANY - 1, 0) < records_again(MANY, 0)
    assert records_again(1_000, 0) == records_again(MANY, 0)
    assert records_again(1_001, TAIL_BYTES_MAX // 2 - 1) == 0
    assert records_again(1_001, TAIL_BYTES_MAX // 2) == 2_002
    assert records_again(1, TAIL_BYTES_MAX // 2) == records_again(MANY, 0)


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(40, 13)))
def test_a_gear_that_stays_behind_comes_to_newer_bases_before_its_tail_is_too_long(
    seed: int,
) -> None:
    dice = random.Random(f"tail {seed}")
    size, lag = dice.choice([60, 112, 200]), dice.randrange(1, 40_000)
    most = dice.choice([20, 900, 1_500, 4_000])
    base = position = 0
    again: int | None = None
    begun = 0
    for _ in range(3 * TAIL_BYTES_MAX // (size * most)):
        records = most if dice.random() < 0.9 else dice.randrange(1, most + 1)
        position += records
        tail_bytes = (position - base) * size
        assert tail_bytes <= TAIL_BYTES_MAX, "the gear ends"
        count = records_again(records, tail_bytes)
        if again is None and count and tail_bytes > TAIL_BYTES_MAX // 3:
            begun = again = max(base, position - lag)
        if again is not None and (again := again + count) >= position:
            base, again = begun, None
    assert base > 0, "there was a rebase"
