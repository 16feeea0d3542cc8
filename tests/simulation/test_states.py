"""States right after a seq: what a backup keeps is what the log says, and any pipeline goes on."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from simulator.log import SimulatedLog
from simulator.procedures import MODULES
from streamydb.backup.folder import StateFolder
from streamydb.backup.pieces import Piece
from streamydb.backup.replay import EVERYTHING, LogReplay, StateAfter, replay
from streamydb.backup.start import Beginning
from streamydb.backup.state import State
from streamydb.frames.shards import ShardConfig
from streamydb.records import decode_marker
from streamydb.records.rulings import NO_RULINGS, Rulings
from streamydb.verify.oracle.order import released
from tests.support.seeds import seeds
from tests.support.states import ends_of, goes_on, truth, written

SEEDS = range(seeds(12, 4))


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
        return ends_of(self._log)


def _run(
    source: _Log, config: ShardConfig, folder: Path, start: State | None, until: int
) -> tuple[LogReplay, State]:
    folder.mkdir()
    run = LogReplay(config, folder, start, until, MODULES)
    replay(run, source, source.ends(), until)
    return run, run.state("sim", "log")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_state_is_that_of_the_oracle_and_goes_on_with_any_shards(
    seed: int, tmp_path: Path
) -> None:
    made = written(seed)
    log, config, _, rng = made
    outputs, digests = truth(log, config)
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
    for name, column in direct.ids.flatten().items():
        assert second.ids.flatten()[name].tolist() == column.tolist()
    order = released(log.partitions, config.partitions)
    for seq, after in run.digests.items():
        assert after == StateAfter(digests[seq], order[seq - 1].ts_ms)
    known = kept.about.offsets()
    start = Beginning(tmp_path / "state", at, tuple(known.get(q, -2) for q in log.partitions))
    goes_on(start, made, outputs)


def _before(log: SimulatedLog, state: State) -> int:
    """How many transactions of the log lie before the places at which a state goes on."""
    return sum(
        decode_marker(record.value) is None
        for partition, known in state.about.positions.items()
        for record in log.partitions[partition]
        if record.offset < known.position
    )


def test_a_log_that_ends_too_early_is_refused(tmp_path: Path) -> None:
    from streamydb.backup import BackupError

    log, config, _, rng = written(1)
    with pytest.raises(BackupError, match="before seq 1000000"):
        _run(_Log(log, rng), config, tmp_path / "a", None, 1_000_000)
    _, everything = _run(_Log(log, rng), config, tmp_path / "b", None, EVERYTHING)
    assert everything.about.seq == len(released(log.partitions, config.partitions))
