"""`streamydb bench rest` without a database: requests, answers, the load generator, the peers."""

from __future__ import annotations

import io
import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import msgspec
import pytest
from rich.console import Console

from bench.errors import BenchError
from bench.rest import postgresql
from bench.rest.cases import CASES, CONSTANT, FACADE, POSTGRESQL, requests
from bench.rest.load import Figures, Job
from bench.rest.peers import Constant, peer_app
from bench.rest.report import show
from bench.rest.run import RestOptions, compared, mixed_facts
from bench.rest.servers import peers, run_load
from bench.rest.wire import Answer, AnswerParser
from streamydb.cli.phases import Phases
from streamydb.facade import FacadeSettings
from streamydb.facade.metrics import FacadeMetrics
from streamydb.facade.server import listen, make_server, server_of
from streamydb.testing.memory import MemoryDatabase
from tests.support.served import running

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: a\r\ncontent-length: 5\r\n\r\nhello"


@contextmanager
def constant() -> Iterator[int]:
    settings = FacadeSettings(port=0)
    with (
        listen(settings) as listener,
        running(server_of(peer_app(Constant()), settings, FacadeMetrics()), listener) as port,
    ):
        yield port


def job(case: str, port: int, **more: Any) -> Job:
    given = {"clients": 3, "seconds": 0.3, "warm_up_s": 0.1, "keys": 1000, "value_bytes": 20}
    return Job(case=case, port=port, begin_s=time.monotonic(), **{**given, **more})


def figures(per_s: float, p50: float = 1.0) -> Figures:
    return Figures(
        answers=10, per_s=per_s, p50=p50, p90=2.0, p99=3.0, max=4.0, cpu_percent=5.0,
        statuses={200: 10},
    )  # fmt: skip


def done(one: Job) -> Figures:
    (answer,) = run_load([msgspec.json.encode(one)])
    return msgspec.json.decode(answer, type=Figures)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_an_answer_is_whole_however_it_is_cut(size: int) -> None:
    parser = AnswerParser()
    for _ in range(2):
        parts = [ANSWER[at : at + size] for at in range(0, len(ANSWER), size)]
        found = [answer for part in parts if (answer := parser.feed(part)) is not None]
        assert found == [Answer(200, b"hello")]


@pytest.mark.parametrize(
    "wrong",
    [ANSWER + b"H", b"hello\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"],
)
def test_what_is_not_one_answer_with_a_length_is_refused(wrong: bytes) -> None:
    with pytest.raises(BenchError):
        AnswerParser().feed(wrong)


def test_requests_are_seeded() -> None:
    for case in CASES:
        first, again, other = (
            list(itertools.islice(requests(case, 1000, 20, seed), 50)) for seed in (1, 1, 2)
        )
        assert first == again
        assert case == "live" or first != other


@pytest.mark.parametrize("case", [name for name, case in CASES.items() if not case.writes])
def test_the_peer_answers_every_case_as_it_must_be(case: str) -> None:
    with constant() as port:
        found = done(job(case, port))
    assert found.answers > 0
    assert set(found.statuses) == {200}
    assert 0 < found.p50 <= found.p90 <= found.p99 <= found.max


def test_a_rate_is_kept_whoever_is_fast() -> None:
    with constant() as port:
        found = done(job("write", port, rate=100.0, seconds=1.0))
    assert abs(found.answers - 100) <= 3  # each of the clients may have one more or less


def test_the_facade_answers_a_write_and_a_wrong_answer_ends_the_run() -> None:
    database, settings = MemoryDatabase(), FacadeSettings(port=0)
    server = make_server(settings, database.model, database.log, database.changes)
    with listen(settings) as listener, running(server, listener) as port:
        assert done(job("write", port, keys=1000, seconds=0.1, warm_up_s=0.0)).answers > 0
        with pytest.raises(BenchError, match="answered 404"):
            done(job("get", port, keys=10**9))
        with pytest.raises(BenchError, match="entries, not 100"):
            done(job("scan", port, keys=10**9))


@pytest.mark.long  # the same requests ask the constant peer in `make test`
@pytest.mark.skipif(bool(postgresql.missing()), reason="needs PostgreSQL and asyncpg")
def test_postgresql_runs_for_the_block_and_holds_what_is_asked_for() -> None:
    with peers(1000, 20, Phases()) as running:
        named = {server.name: server for server in running}
        assert set(named) == {CONSTANT, POSTGRESQL}
        assert all(case.peers <= set(named) for case in CASES.values())
        port = named[POSTGRESQL].port
        for case in ("get", "read", "scan", "write"):
            assert done(job(case, port, seconds=0.2)).answers > 0
        base = f"http://127.0.0.1:{port}/v1/kv"
        put = httpx.put(f"{base}/user/7", content=b'"new"')
        got = httpx.get(f"{base}/user/7")
        assert (got.json(), got.headers["etag"]) == ("new", put.headers["etag"])
        listed = httpx.get(f"{base}?start=user/1&limit=3").json()["entries"]
        assert [entry["key"] for entry in listed] == ["user/1", "user/10", "user/100"]
    assert not any(server.process.is_running() for server in running)


def test_what_is_missing_of_postgresql_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgresql, "find_programs", lambda: None)
    assert "apt-get install postgresql" in (postgresql.missing() or "") or (
        "pip install" in (postgresql.missing() or "")
    )
    with peers(1000, 20, Phases()) as running:
        assert [server.name for server in running] == [CONSTANT]


def test_rows_are_compared_with_those_who_did_the_same() -> None:
    rows = [
        {"case": case, "clients": 16, "server": server, "per_s": per_s, "p50": 2.0}
        for case, server, per_s in (
            ("get", FACADE, 50.0), ("get", CONSTANT, 100.0), ("get", POSTGRESQL, 25.0),
            ("strong", FACADE, 10.0), ("strong", POSTGRESQL, 20.0),
        )
    ]  # fmt: skip
    get, _, _, strong, _ = compared(rows)
    assert (get["rate_to_constant"], get["rate_to_postgresql"]) == (0.5, 2.0)
    assert strong["rate_to_postgresql"] == 0.5
    assert "rate_to_constant" not in strong


def test_a_report_shows_cases_and_the_mixed_run() -> None:
    row = {
        "case": "get", "clients": 16, "server": FACADE, "per_s": 1234.5, "p50": 1.0, "p99": 3.0,
        "cpu_percent": 5.0, "server_cpu_us": 99.0, "store_cpu_us": 0.0,
    }  # fmt: skip
    mixed = mixed_facts([(figures(200, 1.0), figures(200, 1.5), figures(199, 300.0))])
    assert (mixed["p50_ratio"], mixed["rate_ratio"], mixed["write_share"]) == (1.5, 1.0, 0.5)
    store = {"store_cpu_us": 42.0}
    answer = {
        "keys": 1000, "mixed_rate": 200.0, "mixed": [{"server": FACADE, **mixed}],
        "past_the_facade": {"server": FACADE, **mixed, "p99_ratio": 7.25},
        "constant_beside": {"server": CONSTANT, **mixed, "p99_ratio": 2.75},
        "cases": compared([row, {**row, "server": CONSTANT, "per_s": 2469.0, **store}]),
        "machine": {"cores": 4, "processor": "P", "load": 0.1},
    }  # fmt: skip
    out = io.StringIO()
    show(answer, Console(file=out, width=80))
    texts = ("1 key", "1,23", "99+42", "0.50", "1.50, 1.00", "300.0, 3.0", "reads at 200/s")
    for text in (*texts, "past it", "7.25", "2.75"):
        assert text in out.getvalue(), out.getvalue()


def test_one_hiccup_in_three_pairs_decides_nothing() -> None:
    slow = figures(100, 9.0)
    pairs = [
        (figures(200, 1.0), figures(200, 1.2), figures(200, 300.0)),
        (slow, figures(200, 1.1), figures(200, 310.0)),
        (figures(200, 1.0), slow, figures(200, 320.0)),
    ]
    mixed = mixed_facts(pairs)
    assert mixed["pairs"] == 3
    assert (mixed["p50_ratio"], mixed["rate_ratio"]) == (1.2, 1.0)
    assert mixed["p50_ratios"] == [1.2, 0.122, 9.0]
    shown = [mixed[part]["p50"] for part in ("alone", "with_writes", "writes")]
    assert shown == [1.0, 1.2, 310.0]


def test_a_quick_run_is_smaller_and_what_is_given_wins() -> None:
    given: dict[str, Any] = {"peers": False, "seed": 7, "pairs": None}
    long = RestOptions.sized(quick=False, keys=None, seconds=None, **given)
    quick = RestOptions.sized(quick=True, keys=None, seconds=None, **given)
    asked = RestOptions.sized(quick=True, keys=5000, seconds=4.0, **{**given, "pairs": 5})
    assert (long.mixed_pairs, quick.mixed_pairs, asked.mixed_pairs) == (3, 1, 5)
    assert (long.keys, long.read_clients) == (100_000, (1, 16))
    assert (quick.keys, quick.read_clients, quick.seconds) == (10_000, (16,), 1.5)
    assert (asked.keys, asked.seconds, asked.write_seconds, asked.seed) == (5000, 4.0, 8.0, 7)
