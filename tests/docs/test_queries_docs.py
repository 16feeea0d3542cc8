"""docs/queries.md is true: its examples run, one after the other, on one database in memory."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import streamydb
from streamydb import client as api
from streamydb.backup.snapshots.rows import SnapshotRow
from streamydb.facade import create_app
from streamydb.read_model import ReadModel
from streamydb.testing.clients import MemoryHost
from streamydb.testing.in_process import InProcess, scenario
from streamydb.testing.memory import MemoryDatabase
from tests.docs.test_rest import EXAMPLE, same, split
from tests.support.memory_topic import MemoryTopic
from tests.support.read_model import follow, resolve, write
from tests.unit.backup.test_snapshots import make

pytest.importorskip("duckdb")

PAGE = (Path(__file__).parents[2] / "docs" / "queries.md").read_text("utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
ACCOUNTS = {
    "acct/ann": '{"balance":70,"branch":"north"}', "acct/bob": '{"balance":30,"branch":"south"}',
    "acct/cid": '{"balance":5,"branch":"north"}',
}  # fmt: skip


def stored(folder: Path) -> None:
    """The read model and the snapshot that the page names."""
    topic = MemoryTopic(1)
    for number, (key, value) in enumerate(ACCOUNTS.items(), 1):
        write(topic, 0, number, key, value)
    resolve(topic, 3)
    with ReadModel.open(folder / "read-model", "bank", write=True) as model:
        follow(model, topic).close()
    rows = [
        SnapshotRow(key.encode(), value.encode(), number, number, b"t")
        for number, (key, value) in enumerate(ACCOUNTS.items(), 1)
    ]
    make(folder / "snapshots" / "bank-00000000000000000003", rows, seq=3)


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stored(tmp_path)
    with MemoryHost() as host:

        def connect(url: str) -> api.Client:
            assert url == "http://127.0.0.1:8080"
            return host.connect()

        monkeypatch.setattr(streamydb, "connect", connect, raising=False)
        assert len(EXAMPLES) >= 3
        for example in EXAMPLES:
            exec(compile(example, "docs/queries.md", "exec"), {})  # noqa: S102 - our own page


@scenario
async def test_the_requests_are_answered_as_shown() -> None:
    database = MemoryDatabase()
    examples = EXAMPLE.findall(PAGE)
    assert len(examples) >= 2
    async with InProcess(create_app(database.model, database.log, database.changes)) as client:
        for key, value in ACCOUNTS.items():
            await client.request("PUT", f"/v1/kv/{key}", value.encode())
        for request, status, answer in examples:
            (first,), body = split(request)
            method, target = first.split()
            found = await client.request(method, target, body.encode())
            assert found.status == int(status), found
            assert same(split(answer)[1], found.body), found.body
