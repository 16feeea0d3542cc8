"""`pytest --stalest MINUTES`: the long tests that passed longest ago; see `tools.long_tests`."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.support.recording import EndedTests
from tools import long_tests

OPTION = "--stalest"
RECORD = "--record-long"


class Stalest:
    """Leaves out the tests that passed lately; all workers of a run choose the same.

    ``minutes``: how long the run may take.
    """

    def __init__(self, minutes: float) -> None:
        workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
        self._seconds = 60 * minutes * workers

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out what there is no time for."""
        names = [item.nodeid for item in items]
        chosen = set(long_tests.stalest(names, long_tests.read(), self._seconds))
        items[:] = [item for item in items if item.nodeid in chosen]


class LongRecorder(EndedTests):
    """Notes the long tests that pass."""

    def __init__(self) -> None:
        super().__init__("long")

    def ended(self, test: str, run: dict[str, Any], _: list[tuple[str, Any]]) -> None:
        """Note a test if it has passed."""
        if run["outcome"] == "passed":
            long_tests.note(test, {**self.stamp, "seconds": run["seconds"]})
