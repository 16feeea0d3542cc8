"""Workers of a run send its controller what it shows, and no more.

pytest-xdist sends that a test begins and ends, and a report of its set-up, its call and its
teardown. The controller shows one character for a test that passes, of its call; all other messages
cost both sides more than the smallest tests.
"""

from __future__ import annotations

from typing import Any

import pytest

__all__ = ["install", "terse"]

_SENDER = "WorkerInteractor"
"""The class whose hooks send. pytest-xdist executes its source anew in a worker, so there it is in
no module that could be imported."""


def install(config: pytest.Config) -> None:
    """Replace the plugin of a worker that sends."""
    plugins = config.pluginmanager
    for plugin in [each for each in plugins.get_plugins() if type(each).__name__ == _SENDER]:
        plugins.unregister(plugin)
        plugin.__class__ = terse(type(plugin))
        plugins.register(plugin)


def terse(sender: Any) -> Any:
    """Return a class that sends of each test the report of its call, and those that did not pass.

    ``sender``: the class that sends all.
    """

    class Terse(sender):  # type: ignore[misc]
        def pytest_runtest_logstart(self) -> None:
            """Send nothing."""

        def pytest_runtest_logfinish(self) -> None:
            """Send nothing."""

        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.when == "call" or not report.passed:
                super().pytest_runtest_logreport(report)

    return Terse
