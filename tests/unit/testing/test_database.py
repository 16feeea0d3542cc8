"""A database of a test that cannot be started leaves nothing running."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamydb.testing import database
from streamydb.testing.database import Database, TestingError


def test_what_was_started_before_a_failure_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = []

    def fail(_: object) -> None:
        done.append("pipeline started")
        raise TestingError("it is not ready")

    tested = Database(tmp_path)
    monkeypatch.setattr(tested.broker, "start", lambda: done.append("broker started"))
    monkeypatch.setattr(tested.broker, "kill", lambda: done.append("broker killed"))
    monkeypatch.setattr(database, "create", lambda *_, **__: done.append("created"))
    monkeypatch.setattr(Database, "start_pipeline", fail)
    monkeypatch.setattr(Database, "kill_pipeline", lambda _: done.append("pipeline killed"))
    with pytest.raises(TestingError, match="not ready"), tested:
        pytest.fail("it has not begun")
    assert done == [
        "broker started", "created", "pipeline started", "pipeline killed", "broker killed",
    ]  # fmt: skip
