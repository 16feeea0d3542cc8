"""A backup is held against the digests of its own history: one that the log has lost is none."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from streamydb.backup import copy
from streamydb.backup.manifest import BackupError
from streamydb.frames.digest import StateDigest
from tests.support.kept_log import NAMES, Kept
from tests.support.memory_kafka import Partition
from tests.support.seeds import seeds

SEEDS = seeds(30, 6)


class Told(Kept):
    """A database that lost the end of its log some time ago, and what pipelines told of it."""

    def tell(self) -> tuple[int, bool]:
        """Tell digests; how many agree with the log as it is, and whether one really differs."""
        self.kafka.topics[NAMES.digests] = [Partition()]
        dice, last = self.dice, len(self.here())
        self.shards, self.interval = dice.choice([1, 1, 2]), self.made.config.digest_interval
        lost, skewed = dice.randint(0, last), dice.random() < 0.3
        all_ends = range(self.interval, last + 1, self.interval)
        # The second execution begins with the state at what is resolved, amid an interval.
        ends = [n for n in all_ends if not self.resolved < n < self.resolved + self.interval]
        wrong = dice.choice([0, 0, *ends])
        agree, differs = 0, False
        for seq in ends:
            ts_ms = self.order[seq - 1].ts_ms
            if seq > lost and dice.random() < 0.8:
                self._tell("lost", seq, "f" * 32, ts_ms - dice.choice([1, 1_000]))
            at_ms = ts_ms + (-1 if skewed else dice.choice([0, 50]))
            knows = seq <= self.resolved
            if knows and seq != wrong:
                agree += 1
                self._tell("this", seq, self.digests[seq], at_ms)
            if seq == wrong and (knows or not skewed):
                differs = True
                self._tell("this", seq, "e" * 32, at_ms)
        return agree, differs

    def _tell(self, pipeline: str, seq: int, state: str, at_ms: int) -> None:
        """Tell the digest of each shard: the first has all of it."""
        self.kafka.now_ms = at_ms
        for shard in range(self.shards):
            of = state if shard == 0 else "0" * 32
            told = StateDigest(seq, shard, self.interval, of, "0" * 16, self.shards)
            key = f"{shard}/{seq}/{pipeline}".encode()
            self.kafka.append(NAMES.digests, 0, msgspec.json.encode(told), key)


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_digests_of_what_the_log_has_lost_do_not_count_and_any_other_does(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Told(seed, tmp_path, monkeypatch)
    for _ in range(kept.dice.randint(1, 8)):
        kept.grow()
    agree, differs = kept.tell()

    def take() -> copy.BackupReport:
        return copy.take(kept.folder, kept.subject, kept.resolved, 2, lambda *_: None)

    if differs:
        with pytest.raises(BackupError, match="one of them is wrong"):
            take()
    else:
        assert take().verified == agree
