"""What the console counts: latencies by second, hot keys, conflict groups."""

from __future__ import annotations

from collections import Counter, defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamydb.facade.console.contention import Contention, GroupSizes, group_sizes
from streamydb.facade.console.sampler import WINDOW_S, Figures
from streamydb.facade.console.stats import _samples
from streamydb.facade.console.traffic import Traffic
from streamydb.facade.ports import ChangeBatch, ChangeEvent


def batch(*writes: tuple[int, str]) -> ChangeBatch:
    """Changes as (seq, key)."""
    events = [ChangeEvent(seq, n, key, b"{}") for n, (seq, key) in enumerate(writes)]
    return ChangeBatch(max((seq for seq, _ in writes), default=0), tuple(events))


def test_answers_are_counted_by_second() -> None:
    traffic = Traffic(10)
    for status in (200, 201, 404, 409, 500, 503):
        traffic.record(7, "write", status, 0.010)
    assert (traffic.of(7).requests, traffic.of(7).errors) == (6, 2)
    assert traffic.of(7).latencies["write"].total() == 3
    assert traffic.of(8).requests == 0


def test_only_the_window_is_kept() -> None:
    traffic = Traffic(2)
    for second in range(5):
        traffic.record(second, "read", 200, 0.001)
    assert [traffic.of(second).requests for second in range(5)] == [0, 0, 0, 1, 1]


@given(st.lists(st.floats(0, 100), min_size=1), st.sampled_from([0.5, 0.99, 1.0]))
def test_percentiles_are_right_within_three_percent(times: list[float], share: float) -> None:
    traffic = Traffic(1)
    for seconds in times:
        traffic.record(0, "read", 200, seconds)
    rank = max(0, -(-len(times) * round(100 * share) // 100) - 1)
    exact_ms = 1000 * max(1e-6, sorted(times)[rank])
    shown = traffic.of(0).latency_ms("read", share)
    assert shown == pytest.approx(exact_ms, rel=0.03, abs=0.001)
    assert traffic.of(0).latency_ms("write", share) is None


@given(st.lists(st.tuples(st.integers(1, 12), st.sampled_from("abcdefgh")), max_size=30))
def test_groups_are_connected_components(writes: list[tuple[int, str]]) -> None:
    """Against the slow way: merge sets until nothing changes."""
    by_key: dict[str, set[int]] = defaultdict(set)
    for seq, key in writes:
        by_key[key].add(seq)
    groups: list[set[int]] = []
    for members in by_key.values():
        touching = [group for group in groups if group & members]
        groups = [group for group in groups if not group & members]
        groups.append(members.union(*touching))
    assert group_sizes(batch(*writes).changes) == Counter(map(len, groups))


def test_sizes_are_shown_by_powers_of_two() -> None:
    contention = Contention(60)
    contention.take(1, batch((1, "a"), (2, "b"), (3, "b"), (4, "c"), (5, "c"), (6, "c")))
    contention.take(2, batch(*((seq, "hot") for seq in range(10, 19))))
    assert contention.sizes() == [
        GroupSizes(1, 1, 1, 1),
        GroupSizes(2, 2, 1, 2),
        GroupSizes(3, 4, 1, 3),
        GroupSizes(5, 8, 0, 0),
        GroupSizes(9, 16, 1, 9),
    ]
    assert contention.largest() == 9
    assert Contention(1).sizes() == []


def test_the_same_key_in_another_interval_makes_no_group() -> None:
    contention = Contention(60)
    contention.take(1, batch((1, "a")))
    contention.take(1, batch((2, "a")))
    assert contention.sizes() == [GroupSizes(1, 1, 2, 2)]
    assert contention.hot_keys() == [("a", 2)]


def test_the_window_slides() -> None:
    contention = Contention(3)
    for second in range(5):
        contention.take(second, batch((second + 1, f"k{second}")))
    assert dict(contention.hot_keys()) == {"k2": 1, "k3": 1, "k4": 1}
    contention.forget(7)
    assert contention.hot_keys() == []
    assert contention.counts() == {"intervals": 0, "changes": 0, "examined": 0}


def test_what_a_clock_that_was_set_back_has_left_is_forgotten() -> None:
    contention = Contention(3)
    contention.take(1_000, batch((1, "then")))
    for second in (5, 6):
        contention.take(second, batch((2, "now")))
    assert contention.hot_keys() == [("now", 2)]
    contention.take(1_000, batch((3, "then")))
    contention.forget(7)
    assert contention.hot_keys() == []


@pytest.mark.parametrize("began", [0, 9_000])
def test_samples_of_a_clock_that_was_set_back_are_left_out(began: int) -> None:
    taken = [Figures(second=second) for second in (10_000, 10_001)]
    sampler: Any = SimpleNamespace(figures=taken, traffic=Traffic(WINDOW_S), began=began)
    shown = _samples(sampler, 5_000, 0)
    assert [sample.t_ms // 1000 for sample in shown] == [*range(4_701, 5_001)]
    sampler.figures.append(Figures(second=4_998))
    assert [sample.t_ms for sample in _samples(sampler, 5_000, 4_997_000)] == [4_998_000, 4_999_000]


def test_only_so_much_of_a_second_is_examined() -> None:
    contention = Contention(60, examined_per_s_max=4)
    contention.take(1, batch((1, "a"), (2, "a"), (3, "b")))
    contention.take(1, batch((4, "a"), (5, "a")))
    contention.take(1, batch((6, "a")))
    contention.take(2, batch((7, "b")))
    assert contention.counts() == {"intervals": 3, "changes": 7, "examined": 5}
    assert contention.hot_keys() == [("a", 3), ("b", 2)]


def test_few_keys_of_a_past_second_are_kept() -> None:
    contention = Contention(60)
    contention.take(1, batch(*((1, f"k{n % 999}") for n in range(2_000))))
    assert len(contention.hot_keys()) == 999
    contention.take(2, batch((2, "other")))
    assert len(contention.hot_keys()) == 201
