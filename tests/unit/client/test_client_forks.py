"""Clients on both sides of a fork: every process gets its own answers, and harms no other's."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

from streamydb.client import (
    ConnectionLostError,
    NotConnectedError,
    Options,
    OutcomeUnknownError,
    UnexpectedAnswerError,
    connect,
    connector,
)
from streamydb.client.forks import AsyncOwned, Kept, Owned
from streamydb.client.portal import BlockingTransport
from streamydb.client.session import Generation
from streamydb.client.transactions import Builder
from streamydb.records import decode_result
from streamydb.records.attempts import is_attempt
from streamydb.testing.clients import MemoryHost
from tests.support.forked import KINDS
from tests.support.inherited import foreign
from tests.support.seeds import thinned
from tests.support.served import Served, serving
from tests.support.sources import PYTHONPATH
from tests.unit.client.test_client_http import blocking

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def served() -> Iterator[Served]:
    with serving() as facade:
        yield facade


def program(kind: str, url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.forked", kind, url], cwd=ROOT, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
    )  # fmt: skip


@pytest.mark.parametrize("kind", thinned(sorted(KINDS.keys() - {"outlived", "direct"}), 3))
def test_all_that_ask_at_one_instant_get_their_own_answers(kind: str, served: Served) -> None:
    done = program(kind, served.url)
    told, complaints = done.communicate(timeout=250)
    assert done.returncode == 0, complaints
    assert json.loads(told) == []
    assert "leaked" not in complaints


def test_a_child_holds_no_connection_of_its_parent(served: Served) -> None:
    """It lives on, and the facade still sees that the parent has gone."""
    with program("outlived", served.url) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        assert running.stdout.readline() == "begun\n"
        assert running.wait(60) == -9
        gone = threading.Event()
        while served.connections and not gone.wait(0.001):
            pass
        running.stdin.close()
        assert json.loads(running.stdout.read()) == []


def test_what_a_child_does_leaves_the_connections_of_its_parent_alone(served: Served) -> None:
    with connect(served.url) as client:
        client.put("a", 1)
        before = served.connections
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                client.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
        assert client.get("a") == 1
        assert served.connections == before


def test_what_a_client_leads_to_is_seen() -> None:
    with connect("http://127.0.0.1:1") as client:
        ways = foreign(client)
    assert any("HttpTransport" in way and way.endswith("Client") for way in ways)


class _Direct(ModuleType):
    """Makes transports of a database in memory, and notes in which processes."""

    def __init__(self, host: MemoryHost) -> None:
        super().__init__("direct")
        self.host = host
        self.made: list[int] = []

    def transport(
        self, _url: str, _token: str | None, _timeout_s: float, _history: Generation
    ) -> Any:
        self.made.append(os.getpid())
        return self.host._direct


def test_a_client_of_kafka_begins_anew_in_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a loop, threads and parts of its own; those of the parent would wait for ever."""
    with MemoryHost() as host:
        direct = _Direct(host)
        monkeypatch.setattr(connector, "import_module", lambda _: direct)
        client = connect("kafka://h:1/d?read_model=/f", timeout_s=0)
        owned = client._transport._owned  # type: ignore[attr-defined]
        first = owned.get()
        assert isinstance(first, BlockingTransport)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                alone = owned.made() is None
                direct.host = MemoryHost(database=host.database)
                client.get("a", consistency="snapshot")
                other = owned.get()
                new = other is not first and other._portal is not first._portal
                client.close()
                code = 0 if alone and new and direct.made[-1] == os.getpid() else 2
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
        assert client.get("a", consistency="snapshot") is None
        assert direct.made == [os.getpid()]
        client.close()


def test_owned_things_are_made_once_and_left_once() -> None:
    made: list[int] = []
    left: list[int] = []

    def make() -> int:
        made.append(len(made))
        return made[-1]

    owned = Owned(make, left.append)
    assert owned.made() is None
    assert [owned.get(), owned.get(), owned.made()] == [0, 0, 0]
    owned.inherited()
    assert left == []
    owned._process -= 1
    assert owned.made() is None
    assert (owned.get(), left, made) == (1, [0], [0, 1])


def test_kept_things_are_closed_before_a_fork_unless_they_are_lent() -> None:
    closed: list[str] = []
    names = iter("abc")
    kept = Kept(lambda: next(names), closed.append)
    lent, free = kept.take(), kept.take()
    kept.give(free)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if closed == [free] and kept.take() == "c" else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert closed == ["b"]
    kept.give(lent)
    assert kept.take() == "a"


def test_what_belongs_to_a_loop_is_refused_in_a_child_of_the_loop() -> None:
    async def use(owned: AsyncOwned[int]) -> int:
        return owned.get()

    loop = asyncio.new_event_loop()
    owned = AsyncOwned(lambda: 7)
    assert loop.run_until_complete(use(owned)) == 7
    owned._process -= 1
    with pytest.raises(NotConnectedError, match="before a fork"):
        loop.run_until_complete(use(owned))
    assert asyncio.run(use(owned)) == 7
    loop.close()


# Answers are those to their requests, whatever lies in between.


def entry(key: str) -> dict[str, Any]:
    return {"key": key, "value": 1, "version": 1, "ts_ms": 1}


def test_an_answer_that_names_another_request_is_none() -> None:
    """One that names its own, or none, as of an earlier facade, is."""
    names: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        names.append(request.headers["Streamydb-Request"])
        told = [{}, {"Streamydb-Request": names[-1]}, {"Streamydb-Request": names[0]}]
        body = {"seq": 1, "entries": {"k": entry("k")}}
        return httpx.Response(200, json=body, headers=told[len(names) - 1])

    client = blocking(handler)
    assert [client.get("k"), client.get("k")] == [1, 1]
    with pytest.raises(ConnectionLostError, match="another request"):
        client.get("k")
    assert len(set(names)) == 3


@pytest.mark.parametrize("keys", [[], ["other"], ["k", "other"]])
def test_an_answer_with_other_keys_is_none(keys: list[str]) -> None:
    body = {"seq": 1, "entries": {key: entry(key) for key in keys}}
    with pytest.raises(UnexpectedAnswerError, match="other keys"):
        blocking(lambda _: httpx.Response(200, json=body)).get("k")


@pytest.mark.parametrize("key", ["a/", "b/0", "c/1", "b/2"])
def test_an_answer_with_keys_outside_of_a_range_is_none(key: str) -> None:
    body = {"seq": 1, "entries": [entry("b/1"), entry(key)], "cursor": None}
    with pytest.raises(UnexpectedAnswerError, match="outside"):
        [*blocking(lambda _: httpx.Response(200, json=body)).scan("b/", start="b/1", end="b/2")]


def test_the_verdict_of_another_transaction_is_none() -> None:
    """The client sends again, and ends with an outcome that is not known."""
    asked: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append(request.method)
        verdict = {
            "id": "theirs", "seq": 1, "status": "committed", "ts_ms": 1, "reads": {}, "failed": [],
            "code": None, "source": {"partition": 0, "offset": 0},
        }  # fmt: skip
        decode_result(json.dumps(verdict).encode())
        return httpx.Response(200, json=verdict)

    client = blocking(handler, Options(timeout_s=1, backoff_s=0))
    client._awaiting._lifetime.sleep = lambda _: None
    session = client.session
    ticks = iter(range(1_000))
    session.clock = lambda: next(ticks) / 20
    with pytest.raises(OutcomeUnknownError):
        client.put("k", 1)
    assert len(asked) > 1
    with pytest.raises(UnexpectedAnswerError, match="theirs, and not about t"):
        client.verdict("t")
    assert (session.seq, session.behind_ms) == (0, 0)


def test_an_id_that_was_made_before_a_fork_may_have_been_sent() -> None:
    """Neither parent nor child may take it then that there is no other copy."""
    shared, later = Builder(lambda: str(os.getpid())), Builder(lambda: str(os.getpid()))
    told = shared.id
    assert (shared.is_fresh, later.is_fresh, Builder("id").is_fresh) == (True, True, False)
    pid = os.fork()
    if pid == 0:
        same = (shared.is_fresh, shared.id, later.is_fresh) == (False, told, True)
        os._exit(0 if same and later.id != told else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert (shared.is_fresh, later.is_fresh, later.id) == (False, True, told)
    later.prepare()
    assert not later.is_fresh


def test_attempts_of_a_transaction_have_ids_that_follow_from_its_own() -> None:
    assert all(is_attempt(named, "t") for named in ("t", "t~1", "t~8"))
    assert not any(is_attempt(named, "t") for named in ("", "t~9", "u", "u~1", "t~1~1"))
