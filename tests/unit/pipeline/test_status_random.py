"""Whatever order threads tell of states in, a pipeline's status never goes back."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

from streamydb.local.folder import PipelineStatus
from streamydb.pipeline.progress import StatusWriter
from tests.support.seeds import seeds

STATES = ["starting", "running", "stopping", "stopped"]


def shown(path: Path) -> PipelineStatus:
    return msgspec.json.decode(path.read_bytes(), type=PipelineStatus)


@pytest.mark.parametrize("seed", range(seeds(60, 15)))
def test_a_status_never_goes_back(seed: int, tmp_path: Path) -> None:
    """The main thread goes through its states, another one says some time that it stops."""
    dice = random.Random(seed)
    end = dice.choice(["stopped", "failed"])
    told = [state for state in ("starting", "running") if dice.random() < 0.8] + [end]
    for _ in range(dice.randint(1, 2)):
        told.insert(dice.randint(0, len(told)), "stopping")
    path = tmp_path / "status.json"
    status, last = StatusWriter(path, "bank"), 0
    for number, state in enumerate(told):
        status.update(state=state, batch=number)
        found = shown(path)
        now = STATES.index(found.state.replace("failed", "stopped"))
        assert now >= last, told
        assert now >= STATES.index(state.replace("failed", "stopped")), told
        assert found.batch == number, "the other fields are taken all the same"
        last = now
    assert shown(path).state == end, told
