"""The earliest end of all keys: right at every seq, and found by looking at what is new."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from streamydb.read_model import Follower, ReadModel, runs
from tests.support.memory_topic import MemorySource, MemoryTopic
from tests.support.read_model import SETTINGS, change, follow, resolve, small_parts
from tests.support.seeds import seeds

pytestmark = pytest.mark.randomized


@pytest.mark.parametrize("seed", range(seeds(20, 4)))
def test_the_earliest_end_is_that_of_the_keys_at_every_seq(seed: int, tmp_path: Path) -> None:
    rng = random.Random(f"ends {seed}")
    keys = [f"k{n}" for n in range(rng.choice([3, 20, 200]))]
    topic, state, states = MemoryTopic(1), dict[str, int | None](), list[int | None]([None])
    with pytest.MonkeyPatch.context() as patch:
        small_parts(patch, rng)
        with ReadModel.open(tmp_path, "bank", write=True) as model:
            follower = follow(model, topic)
            for seq in range(1, 120):
                key = rng.choice(keys)
                end = rng.choice([None, rng.randrange(1, 50), 10_000 + rng.randrange(1_000)])
                if rng.random() < 0.2:
                    state.pop(key, None)
                    topic.append(0, key.encode(), change(seq, None))
                    topic.append(0, key.encode(), None)
                else:
                    state[key] = end
                    topic.append(0, key.encode(), change(seq, "1", expires_ms=end))
                states.append(min((e for e in state.values() if e is not None), default=None))
                if rng.random() < 0.3:
                    resolve(topic, seq)
                if rng.random() < 0.3:
                    while follower.step(0):
                        pass
                    latest = model.latest().seq
                    for at in {latest, rng.randint(model.oldest(), latest)}:
                        with model.snapshot(at) as snapshot:
                            assert snapshot.first_end() == states[at], (at, latest)


def looked(size: int, folder: Path) -> tuple[int, int]:
    """How many parts there are of so many keys, and how many a look passes after one write."""
    topic = MemoryTopic(1)
    for seq in range(1, size + 1):
        topic.append(0, b"k%06d" % seq, change(seq, "1", expires_ms=10**6 + seq))
    resolve(topic, size)
    with ReadModel.open(folder, "bank", write=True) as model:
        follower = Follower(model, SETTINGS, retention_seqs=0, source=MemorySource(topic))
        while follower.step(0):
            pass
        with model.snapshot() as snapshot:
            assert snapshot.first_end() == 10**6 + 1
        before = model.store.ends.looked
        for seq in range(size + 1, size + 4):  # the earliest goes, another comes, time goes on
            topic.append(0, b"k%06d" % (seq - size), change(seq, "2", expires_ms=10**7))
            resolve(topic, seq)
            while follower.step(0):
                pass
            with model.snapshot() as snapshot:
                assert snapshot.first_end() == 10**6 + seq - size + 1
        return before, model.store.ends.looked - before


def test_a_look_passes_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "PART_BYTES", 500)
    counts = [looked(size, tmp_path / str(size)) for size in (400, 800, 1_600)]
    assert counts[2][0] > 3 * counts[0][0] > 60, "there are more parts"
    assert all(each < 20 for _, each in counts), counts
