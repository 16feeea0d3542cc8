"""The lead of a pipeline's gears: who is asked for, and when an end is a failure.

`tests/simulation/test_gear_election.py` draws what happens around these decisions.
"""

from __future__ import annotations

import pytest

from streamydb.pipeline.realtime.lead import ENDED, LOAD, Decision, GearLead, GearRoles
from streamydb.pipeline.realtime.shifting import LogSample, Shifting
from streamydb.records.gears import MICRO_BATCH, REAL_TIME


def calm() -> Shifting:
    shifting = Shifting()
    for now_ms in range(0, 4_000, 100):
        shifting.note(LogSample(now_ms, 10, 10))
    return shifting


def leading() -> tuple[GearLead, Shifting]:
    shifting = calm()
    lead = GearLead(shifting)
    lead.begin(4_000)
    assert lead.decide(GearRoles(4_000, micro_batch=False, real_time=True)).led
    return lead, shifting


@pytest.mark.parametrize(
    ("micro_batch", "real_time", "asked"),
    [(True, False, REAL_TIME), (False, False, None), (True, True, None)],
)
def test_nobody_is_asked_for_while_another_pipeline_leads(
    *, micro_batch: bool, real_time: bool, asked: str | None
) -> None:
    """Else the gears of a leader and of its standby would take the lead from each other."""
    lead = GearLead(calm())
    lead.begin(4_000)
    roles = GearRoles(4_000, micro_batch=micro_batch, real_time=real_time, ready=True)
    assert lead.decide(roles).ask == asked


def test_a_gear_is_asked_for_again_but_not_all_the_time() -> None:
    lead = GearLead(calm())
    lead.begin(4_000)
    asked = [lead.decide(GearRoles(4_000 + ms, micro_batch=True)).ask for ms in range(0, 500, 50)]
    assert asked == [REAL_TIME, None, None, None] * 2 + [REAL_TIME, None]


def test_a_gear_that_another_pipeline_has_replaced_gives_nothing_back() -> None:
    lead, _ = leading()
    assert lead.give_back(GearRoles(4_100, micro_batch=False)) is None
    assert lead.give_back(GearRoles(4_100, micro_batch=True)) is None
    assert lead.give_back(GearRoles(4_100, micro_batch=False, real_time=True)) == MICRO_BATCH


def test_a_gear_that_is_too_slow_leaves_and_ends_when_the_other_one_leads() -> None:
    lead, shifting = leading()
    shifting.note(LogSample(4_100, 60_000, 10))
    decision = lead.decide(GearRoles(4_100, micro_batch=False, real_time=True))
    assert (decision.ask, decision.leave) == (MICRO_BATCH, True)
    again = lead.decide(GearRoles(4_400, micro_batch=False, real_time=True))
    assert again == Decision(MICRO_BATCH, why=decision.why)
    done = lead.decide(GearRoles(4_500, micro_batch=True))
    assert (done.ends, done.counts, done.why) == (True, "load", decision.why)
    assert not shifting.wants_up(14_000)


def test_one_that_was_too_slow_does_not_write_on() -> None:
    """It would take processor time from the other gear, which has more to do with each moment."""
    lead, shifting = leading()
    shifting.note(LogSample(4_100, 60_000, 50_000))
    assert lead.decide(GearRoles(4_100, micro_batch=False, real_time=True)).leave
    lost = lead.decide(GearRoles(4_200, micro_batch=True, writes_on=True))
    assert (lost.ends, lost.counts) == (True, LOAD)
    lead.begin(20_000)
    lead.decide(GearRoles(20_000, micro_batch=False, real_time=True))
    lost = lead.decide(GearRoles(20_100, micro_batch=False, writes_on=True))
    assert (lost.ends, lost.counts) == (False, "replaced"), "the next one was not too slow"


def test_a_gear_leaves_before_spark_ends_its_batch_and_writes_on_until_the_other_one_does() -> None:
    """Its successor needs some micro-batches before it writes, and clients do not wait for them."""
    lead, shifting = leading()
    decision = lead.decide(GearRoles(20_000, micro_batch=False, real_time=True, expires=True))
    assert (decision.ask, decision.leave) == (MICRO_BATCH, True)
    lost = lead.decide(GearRoles(20_100, micro_batch=True, writes_on=True, expires=True))
    assert (lost.ends, lost.counts, lost.why) == (False, ENDED, decision.why)
    again = GearRoles(20_200, micro_batch=True, real_time=True, writes_on=True)
    assert lead.decide(again) == Decision(), "a late request does not count"
    assert not lead.fail("fault", 20_300), "it was about to end"
    assert lead.decide(GearRoles(20_400, micro_batch=True)) == Decision(ends=True)
    assert shifting.shifts == 2
    assert not shifting.wants_up(30_000), "shifts are ten seconds apart"


def test_a_gear_that_never_led_ends_without_a_shift_before_spark_ends_its_batch() -> None:
    shifting = calm()
    lead = GearLead(shifting)
    lead.begin(4_000)
    assert lead.decide(GearRoles(4_000, micro_batch=True, expires=True)) == Decision(ends=True)
    assert shifting.shifts == 0


def test_a_gear_that_is_replaced_ends() -> None:
    lead, _ = leading()
    done = lead.decide(GearRoles(4_500, micro_batch=False))
    assert (done.ends, done.counts) == (True, "replaced")


@pytest.mark.parametrize(
    ("per_s", "behind", "at_ms", "ends"),
    [
        (2_500, 12_000, 1_000, False), (2_500, 12_000, 11_000, True), (2_500, 0, 11_000, False),
        (20_000, 12_000, 1_000, True),
    ],
)  # fmt: skip
def test_one_that_follows_has_time_to_read_what_came_while_it_was_started(
    per_s: int, behind: int, at_ms: int, *, ends: bool
) -> None:
    """Else it ends for these records, and so does the next one, and the one after that."""
    shifting = Shifting()
    lead = GearLead(shifting)
    lead.begin(0)
    for now_ms in range(max(0, at_ms - 1_000), at_ms + 100, 100):
        end = 100_000 + per_s * now_ms // 1_000
        shifting.note(LogSample(now_ms, end, end - behind))
    assert lead.decide(GearRoles(at_ms, micro_batch=True)).ends is ends


@pytest.mark.parametrize(
    ("reason", "led_s", "failed", "shifts"),
    [
        ("fault", None, True, 0), ("fault", 1, True, 1), ("fault", 60, False, 1),
        ("repeated-id", None, False, 1), ("repeated-id", 1, False, 1), ("rulings", 60, False, 1),
    ],
)  # fmt: skip
def test_only_a_fault_of_a_gear_that_has_not_led_for_long_is_a_failure(
    reason: str, led_s: int | None, shifts: int, *, failed: bool
) -> None:
    """What is no failure waits for the ten seconds between two shifts alone."""
    shifting = calm()
    lead = GearLead(shifting)
    lead.begin(4_000)
    if led_s is not None:
        assert lead.decide(GearRoles(4_000, micro_batch=False, real_time=True)).led
    before = shifting.shifts
    assert lead.fail(reason, 4_000 + 1_000 * (led_s or 0)) is failed
    assert shifting.shifts - before == shifts
