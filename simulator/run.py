"""One seed: draw a configuration, let it run, compare everything with the serial oracle."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from unittest import mock

import msgspec

from simulator.cluster import Cluster
from simulator.constraints import Declarations
from simulator.expiry import Expiry, Leases
from simulator.faults import Release, failing
from simulator.gears import Gears
from simulator.judge import Divergence, SeedOutcome, judge
from simulator.large_values import LargeValues, small_limits
from simulator.log import SimulatedLog
from simulator.pipelines import Pair
from simulator.procedures import Calls
from simulator.ranges import Ranges, few_keys
from simulator.rollback import Rollbacks
from simulator.workflows import FlowCalls
from simulator.workload import Deadlines, Workload
from streamydb.frames.shards import ShardConfig
from streamydb.key_processor import idwindow
from streamydb.local.own_process import no_collection
from streamydb.planner import conflicts
from streamydb.txn_processor import outputs

__all__ = ["Divergence", "SeedOutcome", "run_seed", "settle"]

_SETTLING_BATCHES_MAX = 2_000
_SHARDS = (*[1] * 12, *[2] * 10, *[3] * 4, 4, 4, 5, 8)
_INTERVALS = (50, 7, 1000, 1, 20)
_PARTITIONS = (*[1] * 10, *[2] * 8, *[3] * 6, 4, 4, 5, 8)
_KEYS = {"planner": (1, 3, 8, 40), "single": (1, 3, 8, *[40] * 10, *[150] * 12)}
_CONSTRAINTS = {"planner": 0.5, "single": 0.2}
_LARGE = (*[0.0] * 10, 0.1, 0.4)
_WORKFLOWS = {"planner": (0.0, 0.0, 0.05, 0.2), "single": (0.0, 0.0, 0.0, 0.03)}
"""How many keys, how likely constraints are, in which share of those databases only from a place in
the log on, which share of the records has large values, and which enters a workflow.

One at a time, a hot key means a micro-batch a transaction, all alike, and so do a workflow and the
index of a unique constraint. Many shards or partitions, and these with lock queues, cost several
times what others do, and find nothing that three do not: they are drawn, but seldom.
"""

_RANGES = (0.0, 0.0, 0.05, 0.3)
_RANGE_KEYS = (0, 0, 0, 30, 4)
"""Which share of the transactions names ranges, and how many keys they may have (0: production's).
"""

_EXPIRY = (0.0, 0.0, 0.0, 0.1, 0.5)
_HARDLY, _LEASES = 0.01, (0.05, 0.2, 0.4)
"""Which share of the transactions says when keys end, and which share takes or checks leases."""

_DEADLINES = ((0.0, 0.0), (0.3, 0.05), (0.9, 0.2))
"""Which share of the transactions has a deadline, and which share of the records comes again."""

_SPANS_MS = (16, 100, 20_000)
"""How much commit time a table of ids with deadlines covers: production's, and shorter ones."""

_LEAST_WEIGHTS, _TASK_ROWS = (*[1] * 6, 30, 3_000), (*[1] * 6, 7, 1_000)
"""What a partition gets before one more is used, and a formatting task: production's, and less."""


def run_seed(
    seed: int,
    records: int = 300,
    grouping: str | None = None,
    *,
    pair: bool = False,
    workflows: float | None = None,
    constraints: float | None = None,
    large: float | None = None,
    rollbacks: float | None = None,
    deadlines: float | None = None,
    ranges: float | None = None,
    expiry: float | None = None,
    faults: float = 0.0,
    gears: bool = False,
) -> SeedOutcome:
    """Run one seed with about ``records`` records. The same seed always does the same.

    ``grouping``: planner or single; by default planner for even seeds and single for odd ones.
    ``pair``: two pipelines over the log (`pipelines`). ``gears``: a real-time gear (`gears`).
    ``workflows``: which share of the records enters a workflow; by default as the seed has it.
    ``constraints``: how likely it is that there are some.
    ``rollbacks``: how likely it is, at each moment, that a copy of a checkpoint is put back.
    ``deadlines``, ``large``, ``ranges``, ``expiry``: which share of the transactions has a
    deadline, has large values, names ranges, says when keys end; by default as the seed has it.
    ``faults``: on which share our own code fails; in the end a mended release rebuilds everything.
    """
    rng = random.Random(seed)  # noqa: S311 - a simulation wants to be repeatable
    outcome = SeedOutcome(seed)
    grouping = grouping or ("single" if seed % 2 and not gears else "planner")
    chance = random.Random(f"constraints {seed}")  # noqa: S311 - as above
    constrained = chance.random() < (_CONSTRAINTS[grouping] if constraints is None else constraints)
    alone = constrained and chance.random() < 0.6  # where the locks of a workload are right
    config = _draw_config(rng, seed, grouping, alone=alone)
    config = _for_gears(config) if gears else config
    keys = [f"k{i}" for i in range(rng.choice(_KEYS[grouping]))] + ["é/\n"]
    workload = Workload(
        rng, keys, rng.choice([0.0, 0.1, 0.5]), rng.choice([0.0, 0.05]), rng.choice([0.0, 0.5, 1.0])
    )
    _draw_kinds(workload, seed, workflows, large, config, constrained=constrained)
    workload.ranges = _draw_ranges(seed, keys, ranges)
    workload.expiry, workload.leases = _draw_expiry(seed, workload, expiry)
    workload.declarations = _draw_declarations(chance) if constrained else None
    log = SimulatedLog(rng, config.partitions)
    dice = random.Random(f"deadlines {seed}")  # noqa: S311 - as above
    workload.deadlines = _deadlines(dice, log, deadlines)
    limits = _limits(workload, seed, dice.choice(_SPANS_MS))
    crashes, rate = rng.choice([0.0, 0.02, 0.1]), workload.large.rate if workload.large else 0.0
    kind = Pair if pair else Gears if gears else Cluster
    cluster = kind(config, log, rng, crashes=crashes, large=rate > 0)
    members = [cluster] if isinstance(cluster, Cluster) else cluster.members
    outcome.grouping, outcome.events = grouping, cluster.events
    outcome.config = (
        f"{_shown(config)} constrained={constrained}"
        f" keys={len(keys)} large={rate} pair={pair} gears={gears} "
        f"plan_limit={cluster.plan_limit} crashes={members[0].crashes}"
    )
    try:
        with no_collection(), limits, failing() if faults else nullcontext():
            _break(members, seed, faults)
            back = Rollbacks(seed, members, 0.0 if faults else rollbacks)
            _drive(cluster, log, workload, rng, records, back)
            rebuilt = [_rebuilt(members[0], seed)] if faults else []
            settle([cluster, *rebuilt])
            judge(members[0], log, outcome, [*members[1:], *rebuilt])
            back.finish()
    except Exception as error:  # noqa: BLE001 - whatever it is, the seed is to be looked at
        outcome.problems.append(f"{type(error).__name__}: {error}")
    return outcome


@contextmanager
def _limits(workload: Workload, seed: int, span_ms: int) -> Iterator[None]:
    """Run the body with limits that are small where the workload would not reach them."""
    spans = mock.patch.object(idwindow, "SPAN_MS", span_ms)
    dice = random.Random(f"limits {seed}")  # noqa: S311 - to be repeatable
    large, ranges = workload.large, workload.ranges
    small = small_limits() if large and large.rate else nullcontext()
    least = mock.patch.object(conflicts, "LEAST_WEIGHT", dice.choice(_LEAST_WEIGHTS))
    rows = mock.patch.object(outputs, "_TASK_ROWS", dice.choice(_TASK_ROWS))
    with small, few_keys(ranges.most if ranges else 0), spans, least, rows:
        yield


def _draw_config(rng: random.Random, seed: int, grouping: str, *, alone: bool) -> ShardConfig:
    """The database of a seed; ``alone``: its log has one partition."""
    shards, partitions = rng.choice(_SHARDS), rng.choice(_PARTITIONS)
    return ShardConfig(
        "sim",
        f"seed-{seed}",
        shards,
        1 if alone else partitions,
        rng.choice([3, 20, 100, 10_000]),
        grouping,
        digest_interval=_INTERVALS[seed % len(_INTERVALS)],
    )


def _draw_declarations(chance: random.Random) -> Declarations:
    """Decide which share of the records declares constraints."""
    return Declarations(chance, chance.choice([0.02, 0.1, 0.3]))


def _for_gears(config: ShardConfig) -> ShardConfig:
    """A database that can have a real-time gear."""
    return msgspec.structs.replace(config, shards=1, partitions=1)


def _shown(config: ShardConfig) -> str:
    """A configuration for people."""
    return (
        f"grouping={config.grouping} shards={config.shards} partitions={config.partitions} "
        f"window={config.id_window}"
    )


def _break(members: Sequence[Cluster], seed: int, faults: float) -> None:
    """Let the pipelines be of releases that fail; one of two perhaps of a mended one."""
    dice = random.Random(f"releases {seed}")  # noqa: S311 - as above
    for member in members if faults else ():
        member.code = Release(seed, faults, faults / 2)
    if faults and len(members) > 1 and dice.random() < 0.5:
        dice.choice(members).code = Release(seed, 0.0, faults / 2)


def _rebuilt(cluster: Cluster, seed: int) -> Cluster:
    """A mended release leads, and begins with the beginning of the log."""
    config = msgspec.structs.replace(cluster.config, incarnation=f"rebuilt-{seed}")
    chance = random.Random(f"rebuilt {seed}")  # noqa: S311 - as above
    rebuilt = Cluster(
        config,
        cluster.log,
        chance,
        crashes=cluster.crashes,
        written=cluster.written,
        clock=cluster.clock,
    )
    rebuilt.topic, rebuilt.code = cluster.topic, Release(seed, 0.0, 0.0)
    rebuilt.epoch = cluster.epoch + 1_000
    rebuilt.topic.fence(rebuilt.epoch)
    rebuilt.rulings = rebuilt.topic.rulings()
    return rebuilt


def _draw_kinds(
    workload: Workload,
    seed: int,
    workflows: float | None,
    large: float | None,
    config: ShardConfig,
    *,
    constrained: bool,
) -> None:
    """Decide which share of the transactions are calls, enter a workflow, or have large values."""
    keys = workload.keys
    dice = random.Random(f"procedures {seed}")  # noqa: S311 - to be repeatable
    workload.calls = Calls(dice, keys, dice.choice([0.0, 0.0, 0.2, 0.6]))
    dice = random.Random(f"workflows {seed}")  # noqa: S311 - as above
    rate = dice.choice(_WORKFLOWS[config.grouping]) if workflows is None else workflows
    workload.flows = FlowCalls(dice, keys, rate, constraints=constrained)
    dice = random.Random(f"large {seed}")  # noqa: S311 - as above
    workload.large = LargeValues(dice, keys, dice.choice(_LARGE) if large is None else large)


def _draw_ranges(seed: int, keys: list[str], ranges: float | None) -> Ranges:
    """Decide which share of the transactions names ranges, and how many keys these may have."""
    dice = random.Random(f"ranges {seed}")  # noqa: S311 - to be repeatable
    rate, most = dice.choice(_RANGES), dice.choice(_RANGE_KEYS)
    scans = random.Random(f"scans {seed}")  # noqa: S311 - as above
    return Ranges(dice, keys, rate if ranges is None else ranges, most, scans)


def _draw_expiry(seed: int, workload: Workload, expiry: float | None) -> tuple[Expiry, Leases]:
    """Decide which share of the transactions says when keys end.

    With large transactions and ranges, draw leases, too; in half of those seeds hardly anything
    else ends, because a plan that begins with ends is executed otherwise.
    """
    dice = random.Random(f"expiry {seed}")  # noqa: S311 - to be repeatable
    rate = dice.choice(_EXPIRY)
    found = Expiry(dice, workload.keys, rate if expiry is None else expiry)
    large, ranges = workload.large, workload.ranges
    chance = random.Random(f"leases {seed}")  # noqa: S311 - as above
    if not (found.rate and large and large.rate and ranges and ranges.rate):
        return found, Leases(chance, 0.0)
    if chance.random() < 0.5:
        found.rate = _HARDLY
    return found, Leases(chance, chance.choice(_LEASES))


def _deadlines(dice: random.Random, log: SimulatedLog, rate: float | None) -> Deadlines | None:
    """Clients with deadlines, if there are any."""
    rates = dice.choice(_DEADLINES) if rate is None else (rate, 0.5)
    return Deadlines(dice, log.highest, *rates) if rates[0] else None


def _drive(
    cluster: Cluster | Gears | Pair,
    log: SimulatedLog,
    workload: Workload,
    rng: random.Random,
    records: int,
    back: Rollbacks,
) -> None:
    """Write the records in bursts with batches in between, then let everything settle."""
    grows = rng.random() < 0.2
    while records > 0:
        burst = min(records, rng.choice([1, 10, 40, 90]))
        records -= burst
        for _ in range(burst):
            workload.drawn = len(log.partitions[0])  # follow-ups are in the log, too
            log.append(workload.record())
        if len(log.partitions) > 1 and rng.random() < 0.6:
            log.round(whole=rng.random() < 0.7)
        if grows and rng.random() < 0.1 and len(log.partitions) < 9:
            log.grow()
        for _ in range(rng.choice([0, 1, 1, 2])):
            cluster.batch()
            back.happen()
    settle([cluster])


def settle(clusters: Sequence[Cluster | Gears | Pair]) -> None:
    """Let everything that is in the log, and everything that comes of it, be executed.

    Raises:
        Divergence: there is no end.

    """
    log = clusters[0].log
    fresh = True
    for _ in range(_SETTLING_BATCHES_MAX):
        if not fresh and not any(cluster.behind() for cluster in clusters):
            return
        if fresh or any(cluster.news() for cluster in clusters):
            for _ in range(2 * (len(log.partitions) > 1)):
                log.round()
        fresh = False
        for cluster in clusters:
            cluster.batch(all_of_it=True)
    raise Divergence("the pipeline does not come to rest")
