"""When the gears shift: calm, too fast, and never twice in ten seconds."""

from __future__ import annotations

from streamydb.pipeline.realtime.shifting import (
    BACKLOG_MAX,
    CALM_RATE_MAX,
    WAITING_MAX,
    LogSample,
    Shifting,
)


def _run(shifting: Shifting, begin_ms: int, seconds: float, rate: float, waiting: int = 0) -> int:
    """Take samples ten times a second; return the time and the log's end afterwards."""
    now_ms = begin_ms
    for step in range(int(10 * seconds) + 1):
        now_ms = begin_ms + 100 * step
        end = int(rate * now_ms / 1000)
        shifting.note(LogSample(now_ms, end, end - waiting))
    return now_ms


def test_a_calm_log_is_for_the_real_time_gear_after_some_seconds() -> None:
    shifting = Shifting()
    now_ms = _run(shifting, 0, 2, 100)
    assert not shifting.wants_up(now_ms)
    now_ms = _run(shifting, now_ms, 2, 100)
    assert shifting.wants_up(now_ms)
    assert not shifting.wants_down(now_ms)


def test_a_start_does_not_wait_for_calm_but_for_a_backlog_that_is_not_large() -> None:
    shifting = Shifting()
    assert not shifting.may_begin_at_once(), "nothing is known of the log"
    shifting.note(LogSample(0, 2 * BACKLOG_MAX, BACKLOG_MAX - 1))
    assert not shifting.may_begin_at_once()
    shifting.note(LogSample(100, 2 * BACKLOG_MAX, BACKLOG_MAX))
    assert shifting.may_begin_at_once()
    assert not shifting.is_level(), "the gear executes the backlog before it leads"
    shifting.note(LogSample(200, 2 * BACKLOG_MAX, 2 * BACKLOG_MAX - WAITING_MAX))
    assert shifting.is_level()
    assert not shifting.is_calm()


def test_a_fast_log_is_not() -> None:
    shifting = Shifting()
    now_ms = _run(shifting, 0, 5, 2 * CALM_RATE_MAX)
    assert not shifting.wants_up(now_ms)


def test_records_that_wait_for_a_second_shift_down() -> None:
    shifting = Shifting()
    now_ms = _run(shifting, 0, 4, 100)
    now_ms = _run(shifting, now_ms, 0.5, 100, WAITING_MAX + 1)
    assert not shifting.wants_down(now_ms)
    now_ms = _run(shifting, now_ms, 1, 100, WAITING_MAX + 1)
    assert shifting.wants_down(now_ms)
    now_ms = _run(shifting, now_ms, 0.2, 100)
    assert not shifting.wants_down(now_ms)


def test_two_shifts_up_are_ten_seconds_apart() -> None:
    shifting = Shifting()
    now_ms = _run(shifting, 0, 4, 100)
    shifting.shifted(now_ms)
    now_ms = _run(shifting, now_ms, 9, 100)
    assert not shifting.wants_up(now_ms)
    now_ms = _run(shifting, now_ms, 2, 100)
    assert shifting.wants_up(now_ms)
    assert shifting.shifts == 1
