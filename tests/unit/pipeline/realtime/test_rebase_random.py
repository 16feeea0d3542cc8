"""A rebase in steps: whatever comes between them, the gear goes on as if there had been none."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

from streamydb.frames.plans import Life
from streamydb.local.shard_files import LmdbValues
from streamydb.pipeline.realtime import rebase
from streamydb.pipeline.realtime.core import OpenBase, RealTimeShard, Surroundings, TailRecord
from streamydb.pipeline.realtime.files import opened_base
from streamydb.pipeline.realtime.rebase import Rebase, Rebases
from tests.support.micro_batches import CONFIG, MicroBatches, put
from tests.support.seeds import seeds

GEAR = msgspec.structs.replace(CONFIG, incarnation="gear")


def opened(tmp_path: Path) -> OpenBase:
    found = opened_base(tmp_path, CONFIG)
    assert found is not None
    return found


def gear(tmp_path: Path) -> RealTimeShard:
    return RealTimeShard(Surroundings(GEAR, Life("gear"), 1), opened(tmp_path))


def records(first: int, count: int, dice: random.Random) -> list[TailRecord]:
    return [
        TailRecord(n, 1_000 + n, msgspec.json.encode(put(f"t{n}", f"k{dice.randrange(9)}", n)))
        for n in range(first, first + count)
    ]


def execute(micro: MicroBatches, taken: list[TailRecord]) -> None:
    """Have the micro-batch gear execute the same records."""
    micro.execute(*(msgspec.json.decode(record.value or b"") for record in taken))


def begun(tmp_path: Path) -> tuple[MicroBatches, RealTimeShard, random.Random]:
    """Both gears behind one record; the real-time gear leads."""
    micro, dice = MicroBatches(tmp_path), random.Random(1)
    execute(micro, records(0, 1, dice))
    shard = gear(tmp_path)
    shard.play(leads=True, covered=1)
    return micro, shard, dice


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(20, 8)))
def test_outputs_are_the_same_with_rebases_and_without(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    micro = MicroBatches(tmp_path)
    execute(micro, records(0, 1, dice))
    shard, other = gear(tmp_path), gear(tmp_path)
    for each in (shard, other):
        each.play(leads=True, covered=1)
    rebase_under_way: Rebase | None = None
    executed: list[TailRecord] = []
    for _ in range(30):
        draw = dice.random()
        if draw < 0.5:
            new = records(shard.position, dice.randint(1, 5), dice)
            executed += new
            one, two = shard.take(new), other.take(new)
            assert [(r.topic, r.values.tolist()) for r in one.outputs] == [
                (r.topic, r.values.tolist()) for r in two.outputs
            ]
            assert (one.seq, one.resolved) == (two.seq, two.resolved)
        elif draw < 0.6:
            leads, covered = dice.random() < 0.7, shard.seq
            one, two = (each.play(leads=leads, covered=covered) for each in (shard, other))
            assert (one.seq, one.resolved) == (two.seq, two.resolved)
            for each in (shard, other):
                each.play(leads=True, covered=covered)
        elif draw < 0.7 and executed:
            upto = dice.randint(1, len(executed))
            execute(micro, executed[:upto])
            del executed[:upto]
        elif rebase_under_way is not None:
            successor = rebase_under_way.advance(dice.choice([1, 2, 100]))
            if successor is not None:
                assert len(successor.tail.records) <= len(shard.tail.records)
                shard, rebase_under_way = successor, None
        elif shard.is_newer(base := opened(tmp_path)):
            rebase_under_way = Rebase(shard, base)
        else:
            base.values.close()
    assert (shard.seq, shard.position) == (other.seq, other.position)
    LmdbValues.close(micro.folder)


def test_a_step_executes_so_many_records(tmp_path: Path) -> None:
    micro, shard, dice = begun(tmp_path)
    new = records(1, 10, dice)
    shard.take(new)
    execute(micro, new[:1])
    step = Rebase(shard, opened(tmp_path))
    assert [step.advance(4), step.advance(4)] == [None, None]
    shard.take(records(11, 3, dice))
    successor = step.advance(4)
    assert successor is not None
    assert (successor.base_seq, successor.seq, successor.position) == (2, 14, 14)
    assert [record.offset for record in successor.tail.records] == [*range(2, 14)]
    LmdbValues.close(micro.folder)


def test_rebases_are_some_seconds_apart_and_only_of_long_tails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    micro, shard, dice = begun(tmp_path)
    bases = Rebases(lambda: opened_base(tmp_path, CONFIG), 100.0)
    new = records(1, 1_260, dice)
    shard.take(new)
    execute(micro, new[:10])
    steps = [(bases.advance(shard, 500, now_s), bases.under_way) for now_s in (109.9, 110.0, 110.1)]
    assert steps == [(shard, False), (shard, True), (shard, True)], "too soon, and two steps"
    successor = bases.advance(shard, 500, 110.2)
    assert (successor.base_seq, len(successor.tail.records)) == (11, 1_250)
    execute(micro, new[10:])
    assert bases.advance(successor, 500, 120.1) is successor, "the last one ended later"
    last = bases.advance(successor, 500, 120.2)
    assert (last.base_seq, last.tail.records) == (1_261, [])
    more = records(1_261, 60, dice)
    last.take(more[:49])
    execute(micro, more[:49])
    assert bases.advance(last, 500, 140.0) is last, "its tail is too short"
    last.take(more[49:])
    assert bases.advance(last, 500, 141.0) is last, "it has looked a moment ago"
    monkeypatch.setattr(rebase, "_LONG_TAIL_BYTES", 60)
    assert bases.advance(last, 500, 141.1).base_seq == 1_310
    LmdbValues.close(micro.folder)


def test_a_tail_that_repeats_an_id_of_the_newer_base_puts_the_rebase_off(tmp_path: Path) -> None:
    micro, shard, dice = begun(tmp_path)
    new = records(1, 60, dice)
    again = TailRecord(61, 1_061, new[3].value)
    shard.take([*new, again])
    execute(micro, new[:20])
    bases = Rebases(lambda: opened_base(tmp_path, CONFIG), 0.0)
    assert bases.advance(shard, 100, 10.0) is shard
    assert not bases.under_way
    execute(micro, [*new[20:], again])
    successor = bases.advance(shard, 100, 20.0)
    assert (successor.base_seq, len(successor.tail.records)) == (62, 0)
    LmdbValues.close(micro.folder)
