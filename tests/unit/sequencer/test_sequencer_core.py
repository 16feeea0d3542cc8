"""When a sequencer writes markers: by example, and against the order of whole logs at random."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamydb.limits import MARKER_NUMBER_MAX
from streamydb.records.marker import Marker, decode_marker, encode_marker
from streamydb.sequencer import NumbersExhaustedError, Sequencer
from streamydb.verify.oracle.order import LogRecord, order, released

TRANSACTION = b'{"id":"x"}'


def markers(sequencer: Sequencer, now_ms: int, *, into: int | None = None) -> Marker:
    """Have a round written and read back, in all partitions or in the first `into`."""
    marker = sequencer.next_marker(now_ms)
    assert marker is not None
    for partition in range(marker.partitions if into is None else into):
        sequencer.observe(partition, now_ms, marker)
    return marker


def settled(partitions: int, at_ms: int = 1_000) -> Sequencer:
    """Return a sequencer that has closed a first transaction, and waits for nothing."""
    sequencer = Sequencer(partitions, "s", 10)
    sequencer.observe(0, at_ms)
    for step in range(1, 3):
        if sequencer.waits:
            markers(sequencer, at_ms + 10 * step)
    assert not sequencer.waits
    assert not sequencer.growth_due
    return sequencer


def test_one_partition_never_needs_a_marker() -> None:
    sequencer = Sequencer(1, "s")
    sequencer.observe(0, 5)
    assert sequencer.next_marker(10) is None
    assert sequencer.due_in_ms(10) is None


def test_an_empty_log_needs_no_marker() -> None:
    assert Sequencer(3, "s").next_marker(10) is None


def test_a_transaction_is_released_by_a_round_above_it() -> None:
    sequencer = Sequencer(2, "me", 10)
    sequencer.observe(1, 500)
    assert sequencer.next_marker(100) == Marker(marker=501, partitions=2, sequencer="me")
    assert sequencer.next_marker(109) is None
    assert sequencer.due_in_ms(109) == 1
    assert sequencer.next_marker(110) == Marker(marker=501, partitions=2, sequencer="me")


def test_the_number_is_the_clock_when_that_is_ahead() -> None:
    sequencer = Sequencer(2, "me", 10)
    sequencer.observe(1, 500)
    marker = sequencer.next_marker(700)
    assert marker is not None
    assert marker.marker == 700


def test_nothing_is_written_while_nothing_waits() -> None:
    sequencer = settled(3)
    assert all(sequencer.next_marker(now) is None for now in range(2_000, 100_000, 1_000))


def test_a_transaction_below_the_watermark_does_not_wait() -> None:
    sequencer = settled(2)
    sequencer.observe(0, 5_000)
    assert sequencer.waits
    sequencer.observe(1, 5_001)
    assert sequencer.waits, "now the second one waits"


def test_another_sequencers_round_is_as_good() -> None:
    sequencer = settled(2)
    sequencer.observe(0, 5_000)
    for partition in range(2):
        sequencer.observe(partition, 5_010, Marker(marker=5_010, partitions=2, sequencer="other"))
    assert sequencer.next_marker(6_000) is None


def test_a_half_written_round_is_followed_by_a_whole_one() -> None:
    sequencer = settled(3)
    sequencer.observe(0, 5_000)
    first = markers(sequencer, 5_020, into=1)
    assert sequencer.waits
    second = markers(sequencer, 5_040)
    assert second.marker > first.marker
    assert sequencer.next_marker(6_000) is None


@pytest.mark.fault(6, "the clock handed to the sequencer jumps back", "nothing waits for it")
def test_a_clock_that_jumps_back_delays_nothing() -> None:
    sequencer = settled(2, at_ms=3_600_000)
    sequencer.observe(0, 3_601_000)
    marker = markers(sequencer, 1_000)
    assert marker.marker == 3_601_001
    sequencer.observe(1, 900)
    assert sequencer.next_marker(990) is not None, "990 lies before the last round, not after"


@pytest.mark.fault(6, "one partition's append times jump ahead", "markers lift the others at once")
def test_a_partition_that_jumped_ahead_lifts_the_others() -> None:
    sequencer = settled(2)
    sequencer.observe(1, 9_000_000)
    assert markers(sequencer, 2_000).marker == 9_000_001
    sequencer.observe(0, 2_001)
    assert sequencer.waits, "it is later than the jumped one in the order"
    assert markers(sequencer, 2_020).marker == 9_000_002
    assert not sequencer.waits


def test_growth_needs_one_round_while_nothing_waits() -> None:
    sequencer = settled(2)
    sequencer.set_partitions(4)
    marker = markers(sequencer, 5_000)
    assert marker.partitions == 4
    assert sequencer.next_marker(6_000) is None


def test_growth_of_an_empty_log_that_was_watched_needs_a_round_too() -> None:
    sequencer = Sequencer(2, "s", 10)
    sequencer.set_partitions(3)
    markers(sequencer, 5_000)
    assert sequencer.next_marker(6_000) is None


def test_growth_is_repeated_until_every_partition_has_its_marker() -> None:
    sequencer = settled(2)
    sequencer.set_partitions(3)
    markers(sequencer, 5_000, into=2)
    assert markers(sequencer, 5_020).partitions == 3
    assert sequencer.next_marker(6_000) is None


def test_what_lies_in_a_new_partition_waits_beyond_the_time_it_joins_at() -> None:
    sequencer = settled(2)
    sequencer.set_partitions(3)
    sequencer.observe(2, 1)
    assert sequencer.watermark_ms == -1, "it has not joined"
    first = markers(sequencer, 5_000)
    assert sequencer.waits, "it was lifted to the time of the first markers"
    assert markers(sequencer, 5_020).marker > first.marker
    assert sequencer.next_marker(6_000) is None


def test_who_joined_long_ago_waits_for_nothing_whatever_is_read_first() -> None:
    """A restart that reads the later partition before the markers in the earlier one."""
    sequencer = Sequencer(2, "s", 20)
    old = Marker(marker=500, partitions=2, sequencer="o")
    new = Marker(marker=900, partitions=2, sequencer="o")
    sequencer.observe(1, 400)
    for marker in (old, new):
        sequencer.observe(1, marker.marker, marker)
    for marker in (old, new):
        sequencer.observe(0, marker.marker, marker)
    assert not sequencer.waits
    assert sequencer.next_marker(5_000) is None


def test_partitions_never_go() -> None:
    with pytest.raises(ValueError, match="deleted and created again"):
        settled(3).set_partitions(2)


def test_what_was_not_read_is_taken_to_wait() -> None:
    sequencer = Sequencer(2, "s", 10)
    sequencer.resume(0, 700)
    sequencer.observe(0, 600, Marker(marker=600, partitions=2, sequencer="o"))
    sequencer.observe(1, 600, Marker(marker=600, partitions=2, sequencer="o"))
    marker = sequencer.next_marker(650)
    assert marker is not None
    assert marker.marker == 701


def test_a_hostile_marker_is_told_loudly() -> None:
    sequencer = settled(2)
    hostile = Marker(marker=MARKER_NUMBER_MAX, partitions=2, sequencer="evil")
    sequencer.observe(0, 5_000, hostile)
    sequencer.observe(0, 5_001)
    with pytest.raises(NumbersExhaustedError, match="hostile marker"):
        sequencer.next_marker(5_020)


def test_a_wild_clock_is_bounded_by_what_a_marker_can_carry() -> None:
    sequencer = Sequencer(2, "s", 10)
    sequencer.observe(0, 5)
    marker = sequencer.next_marker(2**60)
    assert marker is not None
    assert marker.marker == MARKER_NUMBER_MAX


@pytest.mark.parametrize("make", [lambda: Sequencer(0, "s"), lambda: Sequencer(1, "s", 0)])
def test_arguments_are_checked(make: Callable[[], Sequencer]) -> None:
    with pytest.raises(ValueError, match="at least"):
        make()


class World:
    """A log, brokers' clocks that wander and sequencers that lag, from one seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.initial = self.random.randint(1, 4)
        self.log: dict[int, list[LogRecord]] = {p: [] for p in range(self.initial)}
        self.clock = {p: self.random.randint(0, 3_000) for p in range(8)}
        self.running: list[tuple[Sequencer, dict[int, int], int]] = []

    def append(self, partition: int, value: bytes) -> None:
        """Append at a clock that stands still, goes on, or jumps either way."""
        step = self.random.choice([0, 0, 0, 1, 1, 5, 40, -20, 2_000, -2_000])
        self.clock[partition] = max(0, self.clock[partition] + step)
        part = self.log[partition]
        part.append(LogRecord(len(part), self.clock[partition], value))

    def start(self, tail: int) -> None:
        """Start a sequencer that reads the last `tail` records of each partition."""
        sequencer = Sequencer(len(self.log), f"s{len(self.running)}", 10)
        places = {}
        for partition, records in self.log.items():
            begin = max(0, len(records) - tail)
            places[partition] = begin
            if begin and records[begin:]:
                stamps = [record.append_ms for record in records]
                highest = stamps.index(max(stamps))
                unread = stamps[highest] if highest < begin else -1
                sequencer.resume(partition, max(unread, stamps[begin]))
        skew = self.random.choice([0, 0, 7, -3_000, 3_000])
        self.running.append((sequencer, places, skew))

    def read(self, which: int, most: int) -> None:
        """Let a sequencer read a few records of each partition."""
        sequencer, places, _ = self.running[which]
        sequencer.set_partitions(len(self.log))
        for partition, records in self.log.items():
            begin = places.get(partition, 0)
            chunk = records[begin : begin + most]
            places[partition] = begin + len(chunk)
            for record in chunk:
                sequencer.observe(partition, record.append_ms, decode_marker(record.value))

    def write(self, which: int, now_ms: int, *, torn: bool) -> bool:
        """Let a sequencer write a round, as far as it gets, in any order of the partitions."""
        sequencer, _, skew = self.running[which]
        marker = sequencer.next_marker(max(0, now_ms + skew))
        if marker is None:
            return False
        partitions = list(range(marker.partitions))
        self.random.shuffle(partitions)
        kept = self.random.randint(0, len(partitions) - 1) if torn else len(partitions)
        for partition in partitions[:kept]:
            self.append(partition, encode_marker(marker))
        return True

    def step(self, now_ms: int) -> None:
        """Do something."""
        what = self.random.random()
        if what < 0.5:
            self.append(self.random.randrange(len(self.log)), TRANSACTION)
        elif what < 0.53 and len(self.log) < 8:
            self.log[len(self.log)] = []
        elif what < 0.57 or not self.running:
            self.start(self.random.choice([2, 5, 1_000]))
        elif what < 0.6:
            self.running.pop(self.random.randrange(len(self.running)))
        elif what < 0.8:
            self.read(self.random.randrange(len(self.running)), self.random.choice([1, 3, 1_000]))
        else:
            which = self.random.randrange(len(self.running))
            self.write(which, now_ms, torn=self.random.random() < 0.3)

    def settle(self, now_ms: int) -> int:
        """Let a new sequencer run until it writes no more; return how many rounds that took."""
        self.running.clear()
        self.start(1_000)
        for rounds in range(20):
            self.read(0, 1_000_000)
            if not self.write(0, now_ms + 20 * rounds, torn=False):
                return rounds
        message = "the sequencer does not come to rest"
        raise AssertionError(message)


@settings(max_examples=300)
@given(st.integers(0, 2**32))
def test_whatever_happened_a_sequencer_releases_everything_and_rests(seed: int) -> None:
    world = World(seed)
    for step in range(world.random.randint(5, 150)):
        world.step(1_000 + 7 * step)
    rounds = world.settle(10_000)
    everything = order(world.log, world.initial)
    transactions = sum(r.value == TRANSACTION for part in world.log.values() for r in part)
    if transactions:
        assert len(everything) == transactions
        assert released(world.log, world.initial) == everything
    assert rounds <= 3
    assert world.settle(20_000) <= 1
    assert world.settle(30_000) == 0
    assert world.settle(40_000) == 0
