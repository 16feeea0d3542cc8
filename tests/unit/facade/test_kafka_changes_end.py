"""A program that ends without closing its client, while it follows the changes, says nothing."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from streamydb.facade import kafka_changes
from streamydb.facade.settings import FacadeSettings
from streamydb.settings import Settings
from streamydb.testing.in_process import scenario, until


@scenario
async def test_following_ends_without_an_error_when_python_has_ended_its_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    polled = threading.Event()

    def poll() -> list[object]:
        polled.set()
        return []

    reader = SimpleNamespace(poll=poll, close=lambda: None)
    monkeypatch.setattr(kafka_changes, "ChangeReader", lambda *_, **__: reader)
    model: Any = SimpleNamespace(
        progress=lambda: SimpleNamespace(parts={}), latest=lambda: SimpleNamespace(seq=0),
        newest=lambda: 0,
    )  # fmt: skip
    changes = kafka_changes.KafkaChanges(Settings(), FacadeSettings(), model)
    await changes.start(lambda _: None)
    await until(polled.is_set)
    changes._executor.shutdown()  # as Python does with every executor of a program that ends
    task = changes._publishing
    assert task is not None
    await until(task.done)
    assert task.exception() is None
    assert changes.fault() is None
