"""Rounds of a campaign: periods with random faults or calm, liveness after each,
proof at the end.
"""

from __future__ import annotations

import random
import shutil
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.campaign.faults import FAULTS, Fault
from tests.campaign.gears import shifts
from tests.campaign.world import LIVENESS_BOUND_S, World
from tests.support.serving import Clients
from tools import reliability

CALM: Final = 4
"""One period in so many is calm."""

_ROUND_S: Final = 480.0
_ANSWERS: Final = 40
_BOTH: Final = 0.25
_CLIENTS: Final = {"planner": 8, "single": 3}
"""With lock queues a hot key does one transaction per micro-batch: on a busy machine more clients
would give up faster than their keys come free, and none would get an answer.
"""


@dataclass
class Totals:
    """What a campaign did.

    Attributes:
        seed: of all choices.
        faults: how often each kind was injected.
        longest_s: the longest time to a verdict after a period.
        gears: rounds whose pipelines had a real-time gear.
        shifts: how often such a gear took the lead.
        seconds: how long the database was under load.

    A record of a failed campaign gets its cause by hand, as `why`, once it is known.
    """

    seed: int
    outcome: str = "passed"
    rounds: int = 0
    periods: int = 0
    calm: int = 0
    transactions: int = 0
    operations: int = 0
    histories: int = 0
    longest_s: float = 0.0
    seconds: float = 0.0
    gears: int = 0
    shifts: int = 0
    faults: Counter[str] = field(default_factory=Counter)

    def record(self) -> dict[str, Any]:
        """As bench/results/reliability.json has it."""
        return {
            **reliability.stamp(), "seed": self.seed, "outcome": self.outcome,
            "hours": round(self.seconds / 3600, 3), "rounds": self.rounds,
            "periods": self.periods, "calm": self.calm, "transactions": self.transactions,
            "histories": self.histories, "operations": self.operations,
            "liveness_s_max": round(self.longest_s, 1), "liveness_bound_s": LIVENESS_BOUND_S,
            "gears": self.gears, "shifts": self.shifts,
            "faults": dict(sorted(self.faults.items())),
        }  # fmt: skip


def tell(text: str) -> None:
    """Say what goes on, with the time."""
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stdout.flush()


@dataclass(frozen=True)
class Wanted:
    """What a campaign is to be like.

    Attributes:
        minutes: of load, about; the proofs come on top.
        only: faults whose name contains this.
        gears: which share of the rounds has a real-time gear.
    """

    minutes: float
    only: str = ""
    gears: float = 0.5


def campaign(folder: Path, wanted: Wanted, totals: Totals) -> None:
    """Run rounds for some minutes; the folder of a round that fails is kept.

    Args:
        folder: which is made; a round has a folder in it.
        wanted: what it is to be like.
        totals: to be counted in; has the seed of all choices.

    Raises:
        AssertionError, StreamyError: the database did not survive.
    """
    rng, dice = random.Random(totals.seed), random.Random(f"gears {totals.seed}")
    while totals.seconds < wanted.minutes * 60:
        totals.rounds += 1
        place = folder / f"round-{totals.rounds}"
        place.mkdir(parents=True)
        seconds = min(_ROUND_S, wanted.minutes * 60 - totals.seconds)
        _round(World(place, rng, **_shape(rng, dice, wanted.gears)), seconds, rng, totals, wanted)
        shutil.rmtree(place)


def _shape(rng: random.Random, dice: random.Random, gears: float) -> dict[str, Any]:
    """Draw a database; one with two gears has one shard, one partition and the usual grouping."""
    shape: dict[str, Any] = {
        "shards": rng.choice([1, 1, 2]), "partitions": rng.choice([1, 2, 3]),
        "grouping": rng.choice(["planner", "planner", "planner", "single"]),
    }  # fmt: skip
    if dice.random() < gears:
        shape = {"shards": 1, "partitions": 1, "grouping": "planner", "gears": True}
    return shape


def _round(
    world: World, seconds: float, rng: random.Random, totals: Totals, wanted: Wanted
) -> None:
    """One database, from its creation to its proof."""
    standby, folder = rng.random() < 0.5, world.folder
    shape = f"{world.shards} shards, {world.partitions} partitions, {world.grouping}"
    shape += ", both gears" if world.gears else ""
    tell(f"round {totals.rounds}: {shape}, standby {standby}, {seconds:.0f} s, in {folder}")
    try:
        with world.running(standby=standby, count=_CLIENTS[world.grouping]) as running:
            begun = time.monotonic()
            while (lasted := time.monotonic() - begun) < seconds:
                _period(world, running, rng, totals, wanted.only)
            totals.seconds += lasted
            tell(running.stop().strip())
            totals.histories += 1
            totals.operations += running.done()
            totals.transactions += world.prove()
            totals.gears += world.gears
            totals.shifts += _shifts(world)
            tell(f"round {totals.rounds} is proved: {totals.transactions:,} transactions so far")
    except BaseException:
        totals.outcome = "failed"
        tell(f"round {totals.rounds} failed; its logs and its history are in {folder}")
        raise


def _shifts(world: World) -> int:
    """Return how often a real-time gear took the lead.

    Raises:
        AssertionError: none did though there is one, so nothing was shown of it.
    """
    if not world.gears:
        return 0
    count = sum(shifts(pipeline) for pipeline in world.pipelines)
    assert count, "no real-time gear took the lead"
    return count


def _period(world: World, running: Clients, rng: random.Random, totals: Totals, only: str) -> None:
    """One period: some progress, then faults or calm, then liveness."""
    totals.periods += 1
    running.progressed(rng.randint(1, _ANSWERS))
    if totals.periods % CALM == 0:
        totals.calm += 1
        running.progressed(_ANSWERS)
        said = "calm"
    else:
        said = ", ".join(_inject(world, fault, rng, totals) for fault in _draw(world, rng, only))
    waited = world.live()
    totals.longest_s = max(totals.longest_s, waited)
    tell(f"period {totals.periods}: {said}; verdict after {waited:.1f} s")


def _draw(world: World, rng: random.Random, only: str) -> list[Fault]:
    """One fault, or two one after the other without a rest."""
    possible = [fault for fault in FAULTS if fault.possible(world) and only in fault.name]
    return rng.sample(possible, min(len(possible), 2 if rng.random() < _BOTH else 1))


def _inject(world: World, fault: Fault, rng: random.Random, totals: Totals) -> str:
    begun = time.monotonic()
    count = fault.inject(world, rng)
    totals.faults[fault.name] += count
    if fault.ends:
        for said in world.restart_failed():
            tell(f"  ended as it should: {said[:200]}")
    world.healthy(fault.name)
    return f"{fault.name} ({count}, {time.monotonic() - begun:.1f} s)"
