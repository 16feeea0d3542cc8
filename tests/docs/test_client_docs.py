"""docs/client.md and README: every example runs against the facade with a database in memory."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import streamydb
from streamydb import client as api
from streamydb.testing.clients import MemoryHost

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "client.md").read_text("utf-8")
TEXTS = PAGE + (ROOT / "README.md").read_text("utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", TEXTS, re.MULTILINE | re.DOTALL)
ADDRESS = "http://127.0.0.1:8080"


@pytest.mark.parametrize("example", EXAMPLES, ids=[str(n) for n in range(1, len(EXAMPLES) + 1)])
def test_the_example_runs(example: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with MemoryHost() as host:
        clients = []

        def connect(url: str) -> api.Client:
            assert url == ADDRESS
            clients.append(host.connect())
            return clients[-1]

        def connect_async(url: str) -> api.AsyncClient:
            assert url == ADDRESS
            return host.connect_async()

        monkeypatch.setattr(streamydb, "connect", connect, raising=False)
        monkeypatch.setattr(streamydb, "connect_async", connect_async, raising=False)
        exec(compile(example, "docs/client.md", "exec"), {})  # noqa: S102 - our own page
        assert host.database.log.records
        assert all(client._awaiting._lifetime.over for client in clients)


def test_there_are_examples_and_every_named_class_exists() -> None:
    assert len(EXAMPLES) >= 6
    named = set(re.findall(r"`(\w+Error)`", PAGE))
    assert len(named) >= 5
    assert named <= set(api.__all__)
