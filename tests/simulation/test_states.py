"""States right after a seq: what a backup keeps is what the log says, and any pipeline goes on."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from streamydb.backup.folder import StateFolder
from streamydb.backup.pieces import Piece
from streamydb.backup.replay import EVERYTHING, Replay, replay
from streamydb.backup.state import State, start_blobs
from streamydb.oracle import Oracle, OutputRecord, released
from streamydb.pipeline.memory import MemoryBlobs
from streamydb.pipeline.shard import ShardConfig
from streamydb.records import decode_marker
from streamydb.sim.cluster import Cluster
from streamydb.sim.digests import state_digest
from streamydb.sim.judge import _TOPICS
from streamydb.sim.log import SimulatedLog
from streamydb.sim.procedures import MODULES, Calls
from streamydb.sim.workload import Deadlines, Workload
from streamydb.txn_processor.rulings import NO_RULINGS, Rulings

SEEDS = range(24)


class _Log:
    """A simulated log as a source."""

    def __init__(self, log: SimulatedLog, rng: random.Random) -> None:
        self._log, self._rng = log, rng

    def rulings(self) -> Rulings:
        return NO_RULINGS

    def pieces(self, partition: int, start: int, end: int) -> Iterator[Piece]:
        records = [r for r in self._log.partitions[partition] if start <= r.offset < end]
        size = self._rng.choice([9, 60, 1000])
        for first in range(0, len(records), size):
            some = records[first : first + size]
            offsets, times = (np.array([r[i] for r in some], np.int64) for i in (0, 1))
            yield Piece(partition, offsets, times, [None] * len(some), [r.value for r in some])

    def ends(self) -> dict[int, int]:
        return {q: rs[-1].offset + 1 if rs else 0 for q, rs in self._log.partitions.items()}


def _written(seed: int) -> tuple[SimulatedLog, ShardConfig, random.Random]:
    """A log with markers, hostile records, repeated ids, deploys and calls; sometimes it grows."""
    rng = random.Random(f"states {seed}")
    config = ShardConfig(
        "sim", "x", 1, rng.choice([1, 1, 2, 3]), rng.choice([3, 20, 10_000]),
        digest_interval=rng.choice([7, 20]),
    )
    keys = [f"k{i}" for i in range(rng.choice([3, 40]))] + ["é/\n"]
    workload = Workload(rng, keys, 0.3, 0.05, 0.5)
    workload.calls = Calls(rng, keys, rng.choice([0.0, 0.3]))
    log = SimulatedLog(rng, config.partitions)
    dice = random.Random(f"deadlines {seed}")
    if seed % 4:
        workload.deadlines = Deadlines(dice, log.highest, 0.6, 0.2)
    grows = rng.random() < 0.4
    for _ in range(20):
        for _ in range(rng.choice([1, 10, 30])):
            log.append(workload.record())
        if grows and rng.random() < 0.2:
            log.grow()
        if len(log.partitions) > 1:
            log.round(whole=rng.random() < 0.7)
    if len(log.partitions) > 1:
        log.round()
        log.round()
    return log, config, rng


def _oracle(log: SimulatedLog, config: ShardConfig) -> tuple[list[list[OutputRecord]], list[str]]:
    """The outputs of each transaction, and the digest of the state after it (that of none first).
    """
    oracle = Oracle("sim", config.id_window, modules=MODULES)
    outputs, digests = [], [state_digest({})]
    for ts_ms, partition, offset, value in released(log.partitions, config.partitions):
        outputs.append(oracle.apply(value, partition, offset, ts_ms))
        digests.append(state_digest({k.encode(): v for k, v in oracle.state.items()}))
    return outputs, digests


def _run(
    source: _Log, config: ShardConfig, folder: Path, start: State | None, until: int
) -> tuple[Replay, State]:
    folder.mkdir()
    run = Replay(config, folder, start, until, MODULES)
    replay(run, source, source.ends(), until)
    return run, run.state("sim", "log")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_state_is_that_of_the_oracle_and_goes_on_with_any_shards(
    seed: int, tmp_path: Path
) -> None:
    log, config, rng = _written(seed)
    outputs, digests = _oracle(log, config)
    last = len(outputs)
    at, later = sorted(rng.choices(range(last + 1), k=2))
    source = _Log(log, rng)
    _, state = _run(source, config, tmp_path / "a", None, at)
    assert (state.about.seq, state.about.digest) == (at, digests[at])
    StateFolder(tmp_path / "state").write(state)
    kept = StateFolder(tmp_path / "state").read()
    _, second = _run(source, config, tmp_path / "b", kept, later)
    run, direct = _run(source, config, tmp_path / "c", None, later)
    assert second.about.digest == direct.about.digest == digests[later]
    assert _before(log, second) == _before(log, direct) == later
    assert second.ids.flatten().keys() == direct.ids.flatten().keys()
    for name, column in direct.ids.cols.items():
        assert second.ids.cols[name].tolist() == column.tolist()
    assert run.digests == {seq: digests[seq] for seq in run.digests}
    _goes_on(kept, log, config, rng, outputs)


def _before(log: SimulatedLog, state: State) -> int:
    """How many transactions of the log lie before the places at which a state goes on."""
    return sum(
        decode_marker(record.value) is None
        for partition, known in state.about.positions.items()
        for record in log.partitions[partition]
        if record.offset < known.position
    )


def _goes_on(
    state: State, log: SimulatedLog, config: ShardConfig, rng: random.Random,
    outputs: list[list[OutputRecord]],
) -> None:
    """Pipelines with other shards begin with a state, and write what the oracle says from there."""
    shards = rng.choice([1, 2, 3, 5])
    fixed = ShardConfig(
        "sim", "new", shards, config.partitions, config.id_window,
        digest_interval=config.digest_interval,
    )
    cluster = Cluster(fixed, log, rng, crashes=0.05)
    for number, node in enumerate(cluster.nodes):
        node.blobs = MemoryBlobs(dict(start_blobs(state, fixed, number)))
    for partition, known in state.about.positions.items():
        before = [r for r in log.partitions[partition] if r.offset < known.position]
        cluster.read_log[partition] = len(before)
    for _ in range(400):
        if not cluster.behind():
            break
        cluster.batch(all_of_it=rng.random() < 0.5)
    assert not cluster.behind()
    wanted = {tuple(each) for some in outputs[state.about.seq :] for each in some}
    written = {
        (_TOPICS[each.topic], each.key, each.value)
        for each in cluster.written
        if each.topic in _TOPICS and not (each.value or b"").startswith(b'{"resolved"')
    }
    assert written == wanted


def test_a_log_that_ends_too_early_is_refused(tmp_path: Path) -> None:
    from streamydb.backup import BackupError

    log, config, rng = _written(1)
    with pytest.raises(BackupError, match="before seq 1000000"):
        _run(_Log(log, rng), config, tmp_path / "a", None, 1_000_000)
    _, everything = _run(_Log(log, rng), config, tmp_path / "b", None, EVERYTHING)
    assert everything.about.seq == len(released(log.partitions, config.partitions))
