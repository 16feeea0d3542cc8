"""`pytest --stalest MINUTES`: the long tests that passed longest ago; see `tools.long_tests`."""

from __future__ import annotations

import os

import pytest

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


class LongRecorder:
    """Notes the long tests that pass."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a phase of a test; it has passed when all three have."""
        if ("long", True) not in map(tuple, report.user_properties):
            return
        spent = self._seconds.get(report.nodeid, 0.0) + report.duration
        self._seconds[report.nodeid] = spent
        if report.outcome != "passed":
            self._failed.add(report.nodeid)
        if report.when == "teardown" and report.nodeid not in self._failed:
            long_tests.note(report.nodeid, spent)
