"""Threads beside a query go on after whatever error, and tell of it."""

from __future__ import annotations

import pytest

from streamydb.pipeline import background, markers
from streamydb.pipeline.background import Background
from streamydb.pipeline.markers import MarkerLoop
from streamydb.settings import Settings
from streamydb.testing.database import wait_for


class Failing(Background):
    """Fails twice, then ends."""

    def __init__(self) -> None:
        super().__init__("failing")
        self.runs = 0

    def _run(self) -> None:
        self.runs += 1
        if self.runs < 3:
            raise MemoryError


def test_work_that_fails_begins_again_and_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(background, "_AGAIN_S", 0.0)
    with Failing() as work:
        wait_for(lambda: not work._thread.is_alive(), "the work to end")
    assert work.runs == 3
    assert [each.message for each in caplog.records] == ["failing failed; it begins again"] * 2


def test_markers_go_on_after_an_error_of_any_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    class Session:
        def __init__(self, *_: object) -> None:
            pass

        def run(self) -> None:
            raise MemoryError

    monkeypatch.setattr(markers, "MarkerSession", Session)
    monkeypatch.setattr(markers, "_BACKOFF_MIN_S", 0.0)
    with MarkerLoop(Settings()) as loop:
        wait_for(lambda: loop.failures > 2, "the markers to be tried again")
        assert (loop.state, loop.last_error) == ("degraded", "MemoryError")
