"""When the gears shift: calm, a surge, records that wait, a gear that is stuck."""

from __future__ import annotations

from streamydb.pipeline.realtime.proven_rate import PROOF_MS
from streamydb.pipeline.realtime.shifting import (
    BACKLOG_MAX,
    CALM_RATE_MAX,
    LATE_MS,
    LATE_RECORDS_MIN,
    STALL_MS,
    STUCK_MS,
    SURGE_RECORDS,
    LogSample,
    Shifting,
)


def _run(
    shifting: Shifting,
    begin_ms: int,
    seconds: float,
    rate: float,
    waiting: int = 0,
    *,
    overtaken: bool = False,
) -> int:
    """Take samples ten times a second; return the time of the last one."""
    now_ms = begin_ms
    for step in range(1, int(10 * seconds) + 1):
        now_ms = begin_ms + 100 * step
        end = int(rate * now_ms / 1000)
        shifting.note(LogSample(now_ms, end, end - waiting, overtaken))
    return now_ms


def test_a_calm_log_is_for_the_real_time_gear_after_some_seconds() -> None:
    shifting = Shifting()
    now_ms = _run(shifting, 0, 2, 100)
    assert not shifting.wants_up(now_ms)
    now_ms = _run(shifting, now_ms, 2, 100)
    assert shifting.wants_up(now_ms)
    assert shifting.wants_down(now_ms) is None


def test_a_log_is_calm_while_the_micro_batch_gear_is_some_tenths_of_a_second_behind() -> None:
    shifting, rate = Shifting(), 0.9 * CALM_RATE_MAX
    now_ms = _run(shifting, 0, 4, rate, int(0.5 * rate))
    assert shifting.wants_up(now_ms)
    now_ms = _run(shifting, now_ms, 4, rate, int(1.2 * rate))
    assert not shifting.wants_up(now_ms)


def test_a_gear_does_not_begin_as_soon_as_a_backlog_is_worked_off() -> None:
    shifting = Shifting()
    now_ms = _run(shifting, 0, 5, 0, int(CALM_RATE_MAX) + 1)
    now_ms = _run(shifting, now_ms, 2, 0)
    assert shifting.is_calm()
    assert not shifting.wants_up(now_ms), "the next backlog may be on its way"
    now_ms = _run(shifting, now_ms, 2, 0)
    assert shifting.wants_up(now_ms)


def test_a_start_does_not_wait_for_calm_but_for_a_backlog_that_is_not_large() -> None:
    shifting = Shifting()
    assert not shifting.may_begin_at_once(), "nothing is known of the log"
    shifting.note(LogSample(0, 2 * BACKLOG_MAX, BACKLOG_MAX - 1))
    assert not shifting.may_begin_at_once()
    shifting.note(LogSample(100, 2 * BACKLOG_MAX, BACKLOG_MAX))
    assert shifting.may_begin_at_once()
    assert not shifting.is_level(), "the gear executes the backlog before it leads"
    shifting.note(LogSample(200, 2 * BACKLOG_MAX, 2 * BACKLOG_MAX - LATE_RECORDS_MIN + 1))
    assert shifting.is_level()
    assert not shifting.is_calm()


def test_a_log_is_fast_by_its_last_half_second() -> None:
    shifting = Shifting()
    now_ms = _run(shifting, 0, 3, 0)
    for step, end in enumerate((0.2, 0.4, 0.6, 0.8, 1.0), 1):
        assert not shifting.is_fast()
        shifting.note(LogSample(now_ms + 100 * step, int(end * CALM_RATE_MAX * 0.6), 0))
    assert shifting.is_fast()
    for step in range(6, 9):
        shifting.note(LogSample(now_ms + 100 * step, int(CALM_RATE_MAX * 0.6), 0))
    assert not shifting.is_fast()


def test_a_fast_log_is_not() -> None:
    shifting = Shifting()
    now_ms = _run(shifting, 0, 5, 2 * CALM_RATE_MAX)
    assert not shifting.wants_up(now_ms)


def test_a_surge_shifts_down_at_once() -> None:
    shifting = Shifting()
    now_ms = _run(shifting, 0, 4, 100)
    shifting.note(LogSample(now_ms + 100, 10_000, 10_000 - SURGE_RECORDS))
    assert shifting.wants_down(now_ms + 100) is None
    shifting.note(LogSample(now_ms + 200, 10_000, 10_000 - SURGE_RECORDS - 1))
    assert "too fast" in (shifting.wants_down(now_ms + 200) or "")


def test_a_gear_that_executes_many_may_stand_still_for_half_a_second() -> None:
    shifting, rate = Shifting(), 4.0 * SURGE_RECORDS
    now_ms = _run(shifting, 0, 4, rate)
    now_ms = _run(shifting, now_ms, 0.1, rate, int(0.8 * rate * STALL_MS / 1_000))
    assert shifting.wants_down(now_ms) is None
    now_ms = _run(shifting, now_ms, 0.1, rate)
    assert shifting.wants_down(now_ms) is None
    now_ms = _run(shifting, now_ms, 0.1, rate, int(1.05 * rate * STALL_MS / 1_000))
    assert "too fast" in (shifting.wants_down(now_ms) or "")


def _lead(shifting: Shifting, begin_ms: int, seconds: float, rate: float) -> int:
    """Let the gear lead for so long; return when it has lost the lead."""
    shifting.shifted(begin_ms, up=True)
    now_ms = _run(shifting, begin_ms, seconds, rate)
    shifting.shifted(now_ms, up=False)
    return now_ms


def test_a_gear_comes_back_to_a_fast_log_that_it_has_kept_up_with_for_a_minute() -> None:
    shifting, rate = Shifting(), 5.0 * CALM_RATE_MAX
    now_ms = _lead(shifting, 0, 59, rate)
    now_ms = _run(shifting, now_ms, 100, rate)
    assert not shifting.wants_up(now_ms), "nothing is proven"
    now_ms = _lead(shifting, now_ms, 62, rate)
    now_ms = _run(shifting, now_ms, 9, rate, int(0.3 * rate))
    assert not shifting.wants_up(now_ms), "shifts are ten seconds apart"
    now_ms = _run(shifting, now_ms, 2, rate, int(0.3 * rate))
    assert shifting.wants_up(now_ms)
    assert not shifting.is_fast()
    now_ms = _run(shifting, 0, 4, 2 * rate)
    assert not shifting.wants_up(now_ms), "that is more than is proven"


def test_a_gear_that_comes_back_works_off_for_a_second_what_has_waited() -> None:
    shifting, rate = Shifting(), 5.0 * CALM_RATE_MAX
    now_ms = _lead(shifting, 0, 62, rate)
    now_ms = _run(shifting, now_ms, 11, rate, int(0.9 * rate))
    shifting.shifted(now_ms, up=True)
    now_ms = _run(shifting, now_ms, 0.9, rate, int(0.9 * rate))
    assert shifting.wants_down(now_ms) is None
    now_ms = _run(shifting, now_ms, 0.2, rate, int(0.9 * rate))
    assert "too fast" in (shifting.wants_down(now_ms) or "")


def test_a_gear_that_could_not_hold_such_a_lead_waits_longer_each_time() -> None:
    shifting, rate = Shifting(), 5.0 * CALM_RATE_MAX
    now_ms = _lead(shifting, 0, 62, rate)
    for minutes in (1, 2, 4, 8, 16):
        now_ms = _lead(shifting, now_ms, 20, rate)
        now_ms = _run(shifting, now_ms, minutes * PROOF_MS / 1_000 - 1, rate)
        assert not shifting.wants_up(now_ms), minutes
        now_ms = _run(shifting, now_ms, 2, rate)
        assert shifting.wants_up(now_ms), minutes
    now_ms = _lead(shifting, now_ms, 20, rate)
    now_ms = _run(shifting, now_ms, 3_600, rate)
    assert not shifting.wants_up(now_ms), "it never could"


def test_records_that_wait_for_half_a_second_shift_down() -> None:
    rate = 4_000.0
    shifting, late = Shifting(), int(rate * (LATE_MS + 100) / 1_000)
    now_ms = _run(shifting, 0, 4, rate)
    now_ms = _run(shifting, now_ms, 0.3, rate, late)
    assert shifting.wants_down(now_ms) is None
    now_ms = _run(shifting, now_ms, 0.2, rate, late)
    assert "wait too long" in (shifting.wants_down(now_ms) or "")
    now_ms = _run(shifting, now_ms, 0.2, rate)
    assert shifting.wants_down(now_ms) is None


def test_a_few_records_that_wait_are_no_load() -> None:
    shifting = Shifting()
    now_ms = _run(shifting, 0, 10, 0)
    for step in range(1, 50):
        now_ms += 100
        shifting.note(LogSample(now_ms, LATE_RECORDS_MIN - 1, 0))
        assert shifting.wants_down(now_ms) is None, step


def test_a_gear_that_does_not_move_is_replaced_though_one_record_waits() -> None:
    shifting = Shifting()
    now_ms = _run(shifting, 0, 4, 1)
    now_ms = _run(shifting, now_ms, STUCK_MS / 1_000, 1, 1, overtaken=True)
    assert shifting.wants_down(now_ms) is None
    now_ms = _run(shifting, now_ms, 0.1, 1, 1, overtaken=True)
    assert "stuck" in (shifting.wants_down(now_ms) or "")
    now_ms = _run(shifting, now_ms, 0.1, 1)
    assert shifting.wants_down(now_ms) is None


def test_a_gear_that_stands_still_is_doubtful_and_one_that_works_is_not() -> None:
    shifting = Shifting()
    now_ms = _run(shifting, 0, 4, 500, 5)
    assert not shifting.is_doubtful(now_ms), "it moves"
    for step in range(11):
        assert not shifting.is_doubtful(now_ms), step
        now_ms += 100
        shifting.note(LogSample(now_ms, 2_010 + step, 1_995))
    assert shifting.is_doubtful(now_ms), "it stands, and the log goes on"
    assert shifting.wants_down(now_ms) is None, "the end of the log may be no record"
    shifting.note(LogSample(now_ms + 100, 2_021, 1_996))
    assert not shifting.is_doubtful(now_ms + 100)
    now_ms = _run(shifting, now_ms + 100, 4, 0)
    assert not shifting.is_doubtful(now_ms), "nothing waits"


def test_two_shifts_up_are_ten_seconds_apart() -> None:
    shifting = Shifting()
    now_ms = _run(shifting, 0, 4, 100)
    shifting.shifted(now_ms, up=False)
    now_ms = _run(shifting, now_ms, 9, 100)
    assert not shifting.wants_up(now_ms)
    now_ms = _run(shifting, now_ms, 2, 100)
    assert shifting.wants_up(now_ms)
    assert shifting.shifts == 1
