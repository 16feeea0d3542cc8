"""`pytest --record-faults`: which faults a run injected, how often, and what came of it.

Marks and counts travel with the reports of tests, so that the workers of pytest-xdist need no more.
"""

from __future__ import annotations

from typing import Any

import pytest

from tools import reliability

OPTION = "--record-faults"


class Recorder:
    """Collects the reports of marked tests, and writes each when it has ended."""

    def __init__(self) -> None:
        self._stamp = reliability.stamp()
        self._runs: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a phase of a test; the worst outcome of its phases counts."""
        properties = [(name, value) for name, value in report.user_properties]
        if not any(name == "fault" for name, _ in properties):
            return
        run = self._runs.setdefault(
            report.nodeid, {"outcome": "passed", "seconds": 0.0, "times": {}, **self._stamp}
        )
        run["seconds"] = round(run["seconds"] + report.duration, 1)
        if report.outcome != "passed":
            run["outcome"] = report.outcome
        if report.when == "teardown":
            run["times"] = counted(properties)
            ended = {report.nodeid: self._runs.pop(report.nodeid)}
            reliability.update(lambda results: results["tests"].update(ended))


def counted(properties: list[tuple[str, Any]]) -> dict[str, int]:
    """How often each case was injected, by its number; `any`: each of those not named."""
    times: dict[str, int] = {}
    for name, value in properties:
        if name == "injected":
            number, count = value
            times[number] = times.get(number, 0) + count
    return times or {"any": 1}
