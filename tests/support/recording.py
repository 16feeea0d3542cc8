"""What a run records of its tests; `pytest --record-faults`: which faults it injected, how often,
and what came of it.

Marks and counts travel with the reports of tests, so that the workers of pytest-xdist need no more.
"""

from __future__ import annotations

from typing import Any

import pytest

from tools import reliability

OPTION = "--record-faults"


class EndedTests:
    """Collects the reports of tests that have a property, and hands each on when it has ended.

    ``name``: of the property.
    """

    def __init__(self, name: str) -> None:
        self.stamp = reliability.stamp()  # before records change what git sees
        self._name = name
        self._runs: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a phase of a test; the worst outcome of its phases counts."""
        properties = [(name, value) for name, value in report.user_properties]
        if not any(name == self._name for name, _ in properties):
            return
        run = self._runs.setdefault(report.nodeid, {"outcome": "passed", "seconds": 0.0})
        run["seconds"] = round(run["seconds"] + report.duration, 1)
        if report.outcome != "passed":
            run["outcome"] = report.outcome
        if report.when == "teardown":
            self.ended(report.nodeid, self._runs.pop(report.nodeid), properties)

    def ended(self, test: str, run: dict[str, Any], properties: list[tuple[str, Any]]) -> None:
        """Record a test: its outcome, the seconds that it took, what else it has told."""
        raise NotImplementedError


class Recorder(EndedTests):
    """Writes what came of the tests of faults."""

    def __init__(self) -> None:
        super().__init__("fault")

    def ended(self, test: str, run: dict[str, Any], properties: list[tuple[str, Any]]) -> None:
        """Write a test into the table."""
        record = {test: {**run, "times": counted(properties), **self.stamp}}
        reliability.update(lambda results: results["tests"].update(record))


def counted(properties: list[tuple[str, Any]]) -> dict[str, int]:
    """How often each case was injected, by its number; `any`: each of those not named."""
    times: dict[str, int] = {}
    for name, value in properties:
        if name == "injected":
            number, count = value
            times[number] = times.get(number, 0) + count
    return times or {"any": 1}
