"""A load that comes and goes: when transactions are due, who led, the order of changes,
a picture.
"""

from __future__ import annotations

import io
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from bench import shifting as bench
from bench.errors import BenchError
from bench.load_profile import FORMS, LoadProfile
from bench.order import RESOLVED, order_of
from bench.plot import GEARS, picture
from bench.shifting import Lead, offer, show

LEVELS = st.lists(st.floats(1, 1_000), min_size=1, max_size=4)


@given(LEVELS, st.floats(0.5, 5), st.integers(1, 3), st.sampled_from([*FORMS]))
def test_as_many_are_due_as_the_area_under_the_rate(
    levels: list[float], plateau_s: float, count: int, form: str
) -> None:
    profile = LoadProfile.cycles(levels, plateau_s, count, [form], 1.0)
    due_s = profile.due_s()
    assert len(due_s) == profile.count
    assert np.all(np.diff(due_s) >= 0)
    grid = np.linspace(0, profile.seconds, 20_001)
    rates = profile.rate_at((grid[1:] + grid[:-1]) / 2)
    area = np.concatenate([[0.0], np.cumsum(rates * np.diff(grid))])
    counted = np.searchsorted(due_s, grid, "right")
    assert np.abs(counted - area).max() <= 2 + 2 * max(levels) * profile.seconds / 20_000


def test_a_cycle_goes_up_and_down_once_and_rests_around_it() -> None:
    steps = LoadProfile.cycles([10, 20], 2.0, 1, ["steps"], 3.0)
    assert steps.seconds == 3 + 3 * 2 + 3
    assert steps.count == (10 + 20 + 10) * 2
    assert list(steps.rate_at(np.array([1.0, 4.0, 6.0, 8.0, 11.0]))) == [0, 10, 20, 10, 0]
    ramps = LoadProfile.cycles([10, 20], 2.0, 1, ["ramps"], 3.0)
    assert list(ramps.rate_at(np.array([3.5, 4.5, 5.5, 6.5]))) == [5, 10, 15, 20]


class Sender:
    """Notes what it is given."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.flushed = 0

    def send(self, payloads: list[bytes]) -> None:
        self.sent += payloads

    def poll(self) -> None:
        assert not self.flushed

    def flush(self) -> None:
        self.flushed += 1


@pytest.mark.parametrize("late_s", [0.0, 100.0])
def test_nothing_is_sent_before_it_is_due_and_all_of_it_in_order(late_s: float) -> None:
    appender: Any = Sender()
    due_s = np.arange(200) / 5_000
    payloads = [b"%d" % n for n in range(200)]
    sent_s = offer(appender, payloads, due_s, time.monotonic() - late_s, lambda _: None)
    assert appender.sent == payloads
    assert appender.flushed == 1
    assert np.all(sent_s >= due_s)
    assert (sent_s - due_s).min() >= late_s - 1, "it was told when it was due, not when it was sent"


def test_changes_that_come_again_are_counted_and_those_out_of_order_refused() -> None:
    keys = np.array([0, 1, 0, RESOLVED, 0, 1, RESOLVED])
    order = order_of(keys, np.array([1, 2, 3, 3, 1, 4, 2]))
    assert (order.changes, order.again, order.resolved, order.late) == (5, 1, 2, 1)
    with pytest.raises(BenchError, match="seq 2 came first behind that of 3"):
        order_of(np.array([0, 0]), np.array([3, 2]))
    with pytest.raises(BenchError, match=r"seq 2 came first behind a record that all up to 3"):
        order_of(np.array([0, RESOLVED, 1]), np.array([3, 3, 2]))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 40)), max_size=40), st.data())
def test_changes_are_refused_only_where_a_key_goes_back(
    drawn: list[tuple[int, int]], data: st.DataObject
) -> None:
    changes = sorted(set(drawn), key=lambda change: change[1])
    again = data.draw(st.lists(st.sampled_from(changes or [(0, 1)]), max_size=5))
    rows = [*changes, *(again if changes else [])]
    keys, seqs = np.array([k for k, _ in rows], int), np.array([s for _, s in rows], int)
    order = order_of(keys, seqs)
    assert (order.changes, order.again) == (len(rows), len(rows) - len(changes))
    by_key = {key: [seq for k, seq in changes if k == key] for key, _ in changes}
    key, of_key = max(by_key.items(), key=lambda item: len(item[1]), default=(0, []))
    if len(of_key) > 1:
        with pytest.raises(BenchError, match="a key's change"):
            order_of(np.array([key, *keys]), np.array([of_key[-1], *seqs]))


def answer() -> dict[str, Any]:
    """Figures of 40 transactions, of which one took 2 s, in a load of one cycle."""
    profile = LoadProfile.cycles([10.0, 20.0], 1.0, 1, ["steps"], 1.0)
    due_s = profile.due_s()
    read_s = due_s + 0.01
    read_s[-1] += 2
    load = bench._Load(0.0, due_s, due_s, read_s)
    leads = [Lead(-3.0, "real-time"), Lead(1.5, "micro-batch"), Lead(3.75, "real-time")]
    return bench._told(profile, load, leads)


def test_figures_are_of_every_transaction_and_by_the_gear_that_led_then() -> None:
    told = answer()
    assert told["transactions"] == told["latency_ms"]["count"] == 40
    assert told["latency_ms"]["max"] == pytest.approx(2_010, abs=0.1)
    assert told["by_gear"]["micro-batch"]["count"] + told["by_gear"]["real-time"]["count"] == 40
    assert told["by_rate"]["20"]["count"] == 20
    assert [shift["gear"] for shift in told["shifts"]] == ["micro-batch", "real-time"]
    assert told["shifts_apart_s_min"] == 2.25
    points = told["points"]
    assert max(point["max_ms"] or 0 for point in points) == pytest.approx(2_010, abs=0.1)
    assert sum(point["offered_per_s"] for point in points) / 4 == 40
    assert {point["gear"] for point in points} == GEARS.keys()


def test_the_answer_is_shown_and_drawn() -> None:
    proof = {"results": 40, "accounts": 2, "changes": 80}
    out = io.StringIO()
    show({**answer(), "proof": proof}, Console(file=out, width=160))
    assert "2 shifts, 2.25 s apart at least" in out.getvalue()
    assert "2,010.0" in out.getvalue()
    drawn = picture(answer())
    assert drawn.startswith("<svg")
    assert drawn.count("<polyline") == 5
    for colour in GEARS.values():
        assert drawn.count(f'height="120" fill="{colour}"') >= 5
