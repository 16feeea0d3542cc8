"""Random logs and what they stand for: shared by the simulations of states and of backups."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from simulator.cluster import Cluster
from simulator.constraints import Declarations
from simulator.digests import state_digest
from simulator.judge import TOPICS
from simulator.log import SimulatedLog
from simulator.procedures import MODULES, Calls
from simulator.workload import Deadlines, Workload
from streamydb.backup.start import Beginning, Starter
from streamydb.frames.shards import ShardConfig
from streamydb.key_processor.memory import MemoryBlobs
from streamydb.records.rulings import NO_RULINGS, Rulings
from streamydb.verify.oracle.core import Oracle
from streamydb.verify.oracle.order import released
from streamydb.verify.oracle.outputs import OutputRecord

__all__ = ["Written", "ends_of", "goes_on", "truth", "written"]


class Written(NamedTuple):
    """A log, the settings of its database, where it ended now and then, a source of chance."""

    log: SimulatedLog
    config: ShardConfig
    ends: list[dict[int, int]]
    rng: random.Random


def written(seed: int) -> Written:
    """A log with markers, hostile records, repeated ids, deploys and calls; sometimes it grows, or
    has constraints.
    """
    rng = random.Random(f"states {seed}")
    config = ShardConfig(
        "sim",
        "x",
        1,
        rng.choice([1, 1, 2, 3]),
        rng.choice([3, 20, 10_000]),
        digest_interval=rng.choice([7, 20]),
    )
    keys = [f"k{i}" for i in range(rng.choice([3, 40]))] + ["é/\n"]
    workload = Workload(rng, keys, 0.3, 0.05, 0.5)
    workload.calls = Calls(rng, keys, rng.choice([0.0, 0.3]))
    log = SimulatedLog(rng, config.partitions)
    dice = random.Random(f"deadlines {seed}")
    if seed % 4:
        workload.deadlines = Deadlines(dice, log.highest, 0.6, 0.2)
    if seed % 3 == 0:
        chance = random.Random(f"constraints {seed}")
        workload.declarations = Declarations(chance, 0.05)
    grows = rng.random() < 0.4
    ends = []
    for _ in range(20):
        for _ in range(rng.choice([1, 10, 30])):
            log.append(workload.record())
        if grows and rng.random() < 0.2:
            log.grow()
        if len(log.partitions) > 1:
            log.round(whole=rng.random() < 0.7)
        ends.append(ends_of(log))
    if len(log.partitions) > 1:
        log.round()
        log.round()
    return Written(log, config, [*ends, ends_of(log)], rng)


def ends_of(log: SimulatedLog) -> dict[int, int]:
    """Per partition, one past its last offset."""
    return {q: rs[-1].offset + 1 if rs else 0 for q, rs in log.partitions.items()}


def truth(
    log: SimulatedLog, config: ShardConfig, rulings: Rulings = NO_RULINGS
) -> tuple[list[list[OutputRecord]], list[str]]:
    """The outputs of each transaction, and the digest of the state after it (that of none
    first).
    """
    oracle = Oracle("sim", config.id_window, rulings, MODULES)
    outputs, digests = [], [state_digest({})]
    for ts_ms, partition, offset, value in released(log.partitions, config.partitions):
        outputs.append(oracle.apply(value, partition, offset, ts_ms))
        digests.append(state_digest({k.encode(): v for k, v in oracle.state.items()}))
    return outputs, digests


def goes_on(
    start: Beginning,
    made: Written,
    outputs: list[list[OutputRecord]],
    lows: Sequence[int] = (),
    rulings: Rulings = NO_RULINGS,
) -> None:
    """Pipelines with any shards begin with a state, and write what the oracle says from there.

    Args:
        start: the state.
        made: the log.
        outputs: of each transaction of it.
        lows: per partition, the first offset that was not trimmed.
        rulings: on records of the log.
    """
    log, config, rng = made.log, made.config, made.rng
    fixed = ShardConfig(
        "sim",
        f"new {rng.random()}",
        rng.choice([1, 2, 3, 5]),
        config.partitions,
        config.id_window,
        digest_interval=config.digest_interval,
    )
    cluster = Cluster(fixed, log, rng, crashes=0.05)
    cluster.topic.rule(rulings.faults, 0)
    cluster.rulings = cluster.topic.rulings()
    starter = Starter(start.folder)
    for number, node in enumerate(cluster.nodes):
        node.blobs = MemoryBlobs()
        starter.put(node.blobs, fixed, number)
    for partition, records in log.partitions.items():
        at = start.offsets[partition] if partition < len(start.offsets) else -2
        low = lows[partition] if partition < len(lows) else 0
        assert at == -2 or at >= low, "records that it needs are gone"
        cluster.read_log[partition] = sum(each.offset < max(at, low) for each in records)
    for _ in range(400):
        if not cluster.behind():
            break
        cluster.batch(all_of_it=rng.random() < 0.5)
    assert not cluster.behind()
    wanted = {tuple(each) for some in outputs[start.seq :] for each in some}
    written = {
        (TOPICS[each.topic], each.key, each.value)
        for each in cluster.written
        if each.topic in TOPICS and not (each.value or b"").startswith(b'{"resolved"')
    }
    assert written == wanted
