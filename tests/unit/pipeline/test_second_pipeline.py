"""A pipeline that finds its checkpoint taken leaves what the one that has it says of itself."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamydb.pipeline import main
from streamydb.pipeline.config import PipelineConfig
from streamydb.pipeline.lease import CheckpointTakenError, locked
from streamydb.settings import Settings


def test_the_status_stays_that_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main, "keep_short", lambda: None)
    checkpoint, status = tmp_path / "checkpoint", tmp_path / "status.json"
    config = PipelineConfig(
        Settings(bootstrap="127.0.0.1:9"), checkpoint, None, tmp_path / "local", status
    )
    ended: list[str] = []
    launch: Any = SimpleNamespace(close=lambda: ended.append("launch"))
    with locked(checkpoint):
        status.write_text("running")
        with pytest.raises(CheckpointTakenError, match="another pipeline runs on the checkpoint"):
            main.run(config, launch)
    assert status.read_text() == "running"
    assert ended == ["launch"]
