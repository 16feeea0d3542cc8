"""The mix of SSS over HTTP against a database in memory: players, answers, external consistency."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from bench.errors import BenchError
from bench.literature import sss
from bench.literature.driver import hold
from bench.literature.judging import Changed
from bench.literature.players import Play, Played, latency_facts, play, playing
from bench.rest.wire import AnswerParser
from histories import AppendOperation, ReadOperation
from histories.answers import call_of
from streamydb.facade import FacadeSettings
from streamydb.facade.server import listen, make_server
from streamydb.testing.memory import MemoryDatabase
from tests.support.literature import broken
from tests.support.served import running

OPTIONS = sss.SssOptions(keys=40, clients=6, seconds=20.0, seed=5)


@contextmanager
def facade() -> Iterator[int]:
    """Serve a database in memory; its port."""
    database, settings = MemoryDatabase(), FacadeSettings(port=0)
    server = make_server(settings, database.model, database.log, database.changes)
    with listen(settings) as listener, running(server, listener) as port:
        yield port


@dataclass
class Mix:
    """What was asked and answered, and what is in the database at the end."""

    requests: list[AppendOperation | ReadOperation]
    played: list[Played]
    values: dict[str, Any] = field(default_factory=dict)

    def judge(self) -> sss.SssJudge:
        judge = sss.SssJudge()
        judge.operations = [sss.operation_of(self.requests[p.request], p) for p in self.played]
        for key, value in self.values.items():
            judge.changed(Changed(key, 1, value))
        return judge


def asked(keys: list[str]) -> tuple[str, bytes]:
    call = call_of(ReadOperation(keys))
    return call.target, call.body


@pytest.fixture(scope="module")
def mix() -> Mix:
    requests = sss.mix(OPTIONS, 0.5, 240, "u")
    calls = [call_of(request) for request in requests]
    keys = [f"k/{number}" for number in range(OPTIONS.keys)]
    with facade() as port:
        given = Play(
            port=port, clients=OPTIONS.clients, seconds=OPTIONS.seconds,
            requests=[(call.target, call.body) for call in calls],
        )  # fmt: skip
        with playing(given) as plays:
            played = plays.end()
        (end,) = play(Play(port=port, clients=1, seconds=9.0, requests=[asked(keys)]))
    entries = json.loads(end.body)["entries"].items()
    return Mix(requests, played, {key: e["value"] for key, e in entries if e})


def test_every_request_is_answered_once_and_the_run_is_externally_consistent(mix: Mix) -> None:
    assert sorted(each.request for each in mix.played) == list(range(240))
    assert {each.client for each in mix.played} == set(range(OPTIONS.clients))
    found = mix.judge().invariants()
    assert hold(found), broken(found)
    facts = latency_facts(mix.played)
    assert (facts["answers"], facts["refused"]) == (240, 0)
    assert 0 < facts["p50"] <= facts["p99"]


def test_the_mix_follows_from_the_seed_and_has_its_shares() -> None:
    for share in sss.SHARES:
        first, again = (sss.mix(OPTIONS, share, 1000, "u") for _ in range(2))
        assert first == again
        reads = [request for request in first if isinstance(request, ReadOperation)]
        updates = [request for request in first if isinstance(request, AppendOperation)]
        assert len(reads) / 1000 == pytest.approx(share, abs=0.05)
        assert {len(set(read.keys)) for read in reads} == set(range(2, 17))
        assert all(len(update.appends) == 2 for update in updates)
        assert len({update.id for update in updates}) == len(updates)


def read_of_update(mix: Mix) -> int:
    """The place of a read-only transaction that saw something, late in the run."""
    places = [
        place for place, each in enumerate(mix.played)
        if isinstance(mix.requests[each.request], ReadOperation) and b'"value":["' in each.body
    ]  # fmt: skip
    return places[-1]


def changed(mix: Mix, place: int, change: Callable[[dict[str, Any]], Any], **more: Any) -> Mix:
    """The mix with another answer at a place."""
    played = list(mix.played)
    one = played[place]
    body = json.dumps(change(json.loads(one.body))).encode()
    given = {"status": one.status, **more}
    played[place] = Played(
        one.request, one.client, one.began_ns, one.ended_ns, given["status"], body
    )
    return Mix(mix.requests, played, mix.values)


def test_a_stale_read_only_transaction_is_noticed(mix: Mix) -> None:
    def empty(answer: dict[str, Any]) -> dict[str, Any]:
        return {**answer, "entries": dict.fromkeys(answer["entries"])}

    found = changed(mix, read_of_update(mix), empty).judge().invariants()
    assert broken(found) == {"external consistency (strictly serializable as clients saw it)"}


def test_a_lost_update_is_noticed(mix: Mix) -> None:
    values = {key: value[:-1] for key, value in mix.values.items()}
    found = Mix(mix.requests, mix.played, values).judge().invariants()
    assert broken(found) == {"every update is there once"}


def test_a_refused_read_only_transaction_is_noticed(mix: Mix) -> None:
    body = {"type": "/problems/overloaded"}
    refused = changed(mix, read_of_update(mix), lambda _: body, status=503)
    assert broken(refused.judge().invariants()) == {sss.NO_ABORT}


def test_a_rate_is_kept_and_latency_runs_from_the_due_time() -> None:
    with facade() as port:
        requests = [asked(["k/1"])] * 30
        played = play(Play(port=port, clients=4, seconds=20.0, rate=100.0, requests=requests))
    due = sorted(each.began_ns for each in played)
    gaps = {round((later - earlier) / 1e6) for earlier, later in pairwise(due)}
    assert gaps == {10}
    assert all(each.ms > 0 for each in played)


def test_a_server_that_closes_the_connection_ends_the_run() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            listener.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        port = listener.getsockname()[1]
        given = Play(port=port, clients=1, seconds=5.0, requests=[asked(["k/1"])])
        with playing(given) as plays, pytest.raises(BenchError, match="the clients failed"):
            plays.end()
        thread.join(30)
    assert AnswerParser().feed(b"") is None
