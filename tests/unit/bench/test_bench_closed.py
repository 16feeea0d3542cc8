"""Closed-loop clients of `bench bank --beside`, over a log and results in memory."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from bench import closed
from bench.closed import closed_loop
from bench.costs import Used
from bench.workload import Bank


class Log:
    """Takes transactions, and gives the result of each, and of a stranger's, in twos."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.given = 0
        self.under_way: list[int] = []

    def appender(self, *_: Any, **__: Any) -> Log:
        return self

    def reader(self, *_: Any) -> Log:
        return self

    def send(self, payloads: list[bytes]) -> None:
        self.ids += [json.loads(payload)["id"] for payload in payloads]
        self.under_way.append(len(self.ids) - self.given)

    def poll(self, *wait_s: float) -> Any:
        """As an appender it has nothing to say; as a reader it gives one message."""
        return SimpleNamespace(key=lambda: None, error=lambda: None) if wait_s else None

    def consume(self, *_: Any) -> list[Any]:
        told = [name.encode() for name in self.ids[self.given : self.given + 2]]
        self.given += len(told)
        keys = [*told, b"other/1", None]
        return [SimpleNamespace(key=lambda key=key: key, error=lambda: None) for key in keys]

    def assign(self, _: Any) -> None: ...

    def close(self) -> None: ...


class Engine:
    connection: dict[str, str] = {}  # noqa: RUF012 - nobody changes it
    names = SimpleNamespace(transactions="log")
    results = SimpleNamespace(ends=lambda: {0: 0}, topic="results")

    def used(self) -> Used:
        return Used()


@pytest.mark.parametrize("clients", [1, 5])
def test_each_client_waits_for_its_verdict(clients: int, monkeypatch: pytest.MonkeyPatch) -> None:
    log: Any = Log()
    monkeypatch.setattr(closed, "Appender", log.appender)
    monkeypatch.setattr(closed, "reader", log.reader)
    engine: Any = Engine()
    found = closed_loop(engine, Bank(10), first=100, clients=clients, warm_up_s=0.01, seconds=0.05)
    assert log.ids == [f"t{100 + number}" for number in range(found.sent)]
    assert set(log.under_way) == {clients}
    assert log.given == found.sent
    assert 0 < found.committed == len(found.latencies_s) < found.sent
