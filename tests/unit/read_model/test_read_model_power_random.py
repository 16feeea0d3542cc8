"""A power loss behind a commit: the file is whole, as it was before that, and is followed on."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from streamydb.read_model import Follower, ReadModel
from streamydb.read_model.environment import Environment
from tests.support.memory_topic import MemorySource, MemoryTopic
from tests.support.read_model import SETTINGS, follow, resolve, write
from tests.support.seeds import seeds

HEADS = 2  # LMDB's first pages name the last two commits, by turns; a commit does not sync its own


def heads(folder: Path, page_bytes: int) -> bytes:
    """The pages that a power loss may take back."""
    with (folder / "data.mdb").open("rb") as file:
        return file.read(HEADS * page_bytes)


def lose_power(folder: Path, before: bytes) -> None:
    """Leave on the disk all that the last commit has synced, and the heads from before it."""
    with (folder / "data.mdb").open("r+b") as file:
        file.write(before)


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(12, 2)))
def test_a_power_loss_undoes_the_last_commit_and_nothing_else(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    topic, folder = MemoryTopic(2), tmp_path / "model"
    retention_seqs = dice.choice([0, 5])
    ReadModel.open(folder, "bank", write=True).close()
    for seq in range(1, 30):
        key = f"k{dice.randrange(5)}"
        write(topic, dice.randrange(2), seq, key, dice.choice([None, str(seq), f'"{"x" * 300}"']))
        if dice.random() < 0.7:
            resolve(topic, seq)
        with ReadModel.open(folder, "bank", write=True) as model:
            follower = Follower(
                model, SETTINGS, retention_s=0, retention_seqs=retention_seqs,
                source=MemorySource(topic),
            )  # fmt: skip
            follower.step(0)
            progress, latest = model.store.progress(), model.latest()
            topic.append(0, None, None)  # something to commit
            page_bytes = model.store.environment._env.stat()["psize"]
            before = heads(folder, page_bytes)
            follower.step(0)
            assert model.store.progress() != progress
            assert heads(folder, page_bytes) != before
        if dice.random() < 0.5:
            lose_power(folder, before)
            with ReadModel.open(folder, "bank") as model:
                assert (model.store.progress(), model.latest()) == (progress, latest)
    resolve(topic, 30)
    with ReadModel.open(folder, "bank", write=True) as model:
        follow(model, topic)
        with ReadModel.open(tmp_path / "other", "bank", write=True) as other:
            follow(other, topic)
            with model.snapshot() as one, other.snapshot() as two:
                assert one.digest() == two.digest()


def test_a_commit_syncs_what_it_has_written(tmp_path: Path) -> None:
    environment = Environment.open(tmp_path, write=True)
    assert environment._env.flags()["sync"]
    environment.close()
