"""What workers send of a test: what its run shows, or fails by."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from tests.support.terse import install, terse


class WorkerInteractor:
    """Sends as pytest-xdist's does."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.sent.append(nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.sent.append(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.sent.append((report.when, report.outcome))


def report(
    when: Literal["setup", "call", "teardown"], outcome: Literal["passed", "failed", "skipped"]
) -> pytest.TestReport:
    return pytest.TestReport("a", ("a", 1, "a"), {}, outcome, None, when)


def test_a_worker_sends_calls_and_what_did_not_pass() -> None:
    sender = terse(WorkerInteractor)()
    shown = [
        report("call", "passed"), report("call", "failed"), report("call", "skipped"),
        report("setup", "failed"), report("setup", "skipped"), report("teardown", "failed"),
    ]  # fmt: skip
    for each in [report("setup", "passed"), *shown, report("teardown", "passed")]:
        sender.pytest_runtest_logreport(each)
    assert sender.sent == [(each.when, each.outcome) for each in shown]


def test_the_sender_of_a_worker_is_replaced() -> None:
    config = pytest.Config(plugins := pytest.PytestPluginManager())
    plugins.register(sender := WorkerInteractor())
    install(config)
    location = ("a", 1, "a")
    config.hook.pytest_runtest_logstart(nodeid="a", location=location)
    config.hook.pytest_runtest_logreport(report=report("setup", "passed"))
    config.hook.pytest_runtest_logreport(report=report("call", "passed"))
    config.hook.pytest_runtest_logfinish(nodeid="a", location=location)
    assert sender.sent == [("call", "passed")]
