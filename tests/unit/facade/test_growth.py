"""What a request costs grows as what it names and finds: n, 2n and 4n of each operation.

Work is counted in the facade: calls, and the most bytes held at once. Every operation of the
OpenAPI document is here, and every list of a transaction; a new one fails the test until somebody
says what is to be large.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache, partial
from typing import Any, Final, TypeAlias

import pytest
from msgspec import structs

from streamydb.facade import FacadeSettings, create_app
from streamydb.facade.about import About
from streamydb.facade.explanation import Evidence
from streamydb.facade.explanation.evidence import FeedbackPlan, PlanMember
from streamydb.records import Result, Transaction, decode
from streamydb.records.emission import Emitted
from streamydb.records.transaction_schema import transaction
from streamydb.testing.in_process import HttpAnswer, InProcess, scenario
from streamydb.testing.memory_model import MemorySnapshot
from tests.support.history import HistoryDatabase, HistoryModel, HistorySnapshot
from tests.support.interference import encoded
from tests.support.work import Counter, grows_faster

SMALL: Final = 70
ASYNC: Final = {"prefer": "respond-async"}

Ask: TypeAlias = Callable[[InProcess], Awaitable[HttpAnswer]]


def key(number: int) -> str:
    return f"k/{number:06}"


def puts(count: int, **more: Any) -> dict[str, Any]:
    return {"updates": [{"op": "put", "key": key(n), "value": n, **more} for n in range(count)]}


class PastModel(HistoryModel):
    """A read model whose past states have histories and no entries: each would be made of all."""

    def snapshot(self, at: int | None = None) -> HistorySnapshot:
        if at is None:
            return super().snapshot()
        return HistorySnapshot(MemorySnapshot(at, {}), self._versions)


class Sized(HistoryDatabase):
    """A database with n of everything that a request may find."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.model = PastModel()
        self.tick_by_record(1_800_000_000_000)
        whole = {"range": {"prefix": "k/"}}
        self.add("many", puts(size))
        self.add("read", {"reads": [key(n) for n in range(size)]})
        self.add("failed", {"checks": [{"key": key(n), "version": 0} for n in range(size)]})
        for number in range(size):
            written = (f"h/{number % 2}", key(number))
            updates = [{"op": "put", "key": name, "value": number} for name in written]
            self.add(f"wide{number}", {"updates": updates, "locks": [whole]})
        for number in range(min(size, 256)):
            self.add(f"rule{number}", {"constrain": {"declare": {
                "name": f"r{number}", "prefix": f"r{number}/", "type": "number"
            }}})  # fmt: skip
        for _ in range(size):
            self.add("again", puts(1))
        self.add("deploy", {"deploy": {"module": "m", "hash": f"sha256:{0:064}", "procedures": {}}})
        for number in range(size):
            row = Emitted("m.s", number + 1, 0, 1, "x", 1, {"number": number})
            self.changes.streams.put(b"m.s", encoded(structs.asdict(row)))

    def add(self, name: str, parts: dict[str, Any]) -> None:
        self.log.records.append(encoded({"id": name, **parts}))
        self.log.stamps[len(self.log.records) - 1] = self.now_ms + 1
        self.run()

    def about(self) -> About:
        """All transactions are one plan."""
        records = [(r.seq, decode(self.log.records[r.source.offset])) for r in self.log.results]
        members = [PlanMember(s, t if isinstance(t, Transaction) else None) for s, t in records]

        def evidence(result: Result) -> Evidence:
            plan = FeedbackPlan(1, 1, members[-1].seq, "x", members)
            raw = self.log.records[result.source.offset]
            return Evidence(raw=raw, partitions=1, missing={}, plan=plan)

        return About("memory", evidence=evidence)


@cache
def unchanging(size: int) -> Sized:
    """Return a database for requests that only read; it is filled once for all of them."""
    return Sized(size)


def get(target: str) -> Callable[[int], Ask]:
    return lambda n: lambda client: client.request("GET", target.format(n=n))


def send(method: str, target: str, body: Callable[[int], Any]) -> Callable[[int], Ask]:
    return lambda n: lambda client: client.request(method, target, encoded(body(n)), ASYNC)


def ranges(count: int, *, nested: bool) -> list[dict[str, str]]:
    """Ranges side by side, or one in the other."""
    if nested:
        return [{"start": key(n), "end": "k0"} for n in range(count)]
    return [{"prefix": key(n)} for n in range(count)]


def parts_of(name: str, count: int, *, nested: bool) -> dict[str, Any]:
    """A transaction with so many of what a field lists."""
    keys, spans = [key(n) for n in range(count)], ranges(count, nested=nested)
    found: dict[str, Any] = {
        "asserts": dict.fromkeys(keys, 1),
        "checks": [{"key": name, "ge": 1} for name in keys]
        + [{"range": span, "count_ge": 0} for span in spans],
        "reads": [*keys, *({"range": span} for span in spans)],
        "updates": puts(count)["updates"],
        "call": {"procedure": "m.f", "args": {"a": keys}, "keys": keys, "reads": ["x", *keys],
                 "ranges": spans},
        "deploy": {"module": "m", "hash": f"sha256:{0:064}",
                   "procedures": {f"p{n}": ["a"] * 9 for n in range(count)}},
        "constrain": {"declare": {"name": "n", "prefix": "x/", "schema": {"enum": keys}}},
        "locks": [{"range": span} for span in spans],
        "id": "sent", "deadline_ms": 1_800_000_600_000,
    }  # fmt: skip
    return {name: found[name]}


async def _streamed(last: int, client: InProcess) -> HttpAnswer:
    """Read all changes: to what comes first, a slow machine does less work, or more."""
    stream = await client.stream("/v1/changes?since=0&start=k/&where=%7B%22ge%22%3A0%7D")
    await stream.until(b'"resolved":%d' % last)
    stream.leave()
    return HttpAnswer(stream.status, stream.headers, stream.data)


OPERATIONS: dict[str, list[Callable[[int], Ask]]] = {
    "GET /v1/kv/{key}": [get("/v1/kv/k%2F000001")],
    "PUT /v1/kv/{key}": [send("PUT", "/v1/kv/a", lambda n: list(range(n)))],
    "DELETE /v1/kv/{key}": [send("DELETE", "/v1/kv/a", lambda _: None)],
    "GET /v1/kv": [get("/v1/kv?prefix=k/&limit={n}")],
    "POST /v1/read": [send("POST", "/v1/read", lambda n: {"keys": [key(i) for i in range(n)]})],
    "GET /v1/transactions/{id}": [
        get(f"/v1/transactions/{name}") for name in ("many", "read", "failed", "again", "none")
    ],
    "GET /v1/explanations/{id}": [
        get(f"/v1/explanations/{name}") for name in ("many", "read", "failed", "again", "wide1")
    ],
    "GET /v1/changes": [lambda n: partial(_streamed, unchanging(n).log.results[-1].seq)],
    "GET /v1/streams/{name}": [get("/v1/streams/m.s?limit={n}")],
    "GET /v1/history/{key}": [get("/v1/history/h%2F1?limit={n}")],
    "GET /v1/stats": [get("/v1/stats")],
    "GET /v1/constraints": [get("/v1/constraints")],
    "GET /v1/pipelines": [get("/v1/pipelines")],
    "GET /v1/limits": [get("/v1/limits")],
    "GET /metrics": [get("/metrics")],
    "GET /health/live": [get("/health/live")],
    "GET /health/ready": [get("/health/ready")],
    "GET /problems": [get("/problems")],
    "GET /problems/{slug}": [get("/problems/forbidden")],
    "POST /v1/query": [send("POST", "/v1/query", lambda n: {
        "sql": f"select key from kv where key in ({', '.join('?' * n)})",
        "params": [key(i) for i in range(n)], "prefix": "k/",
    })],
    "POST /v1/sql": [send("POST", "/v1/sql", lambda n: {
        "statements": [{"sql": "create table if not exists t (id int primary key)"}] * (n // 10)
    })],
    "POST /v1/transactions": [
        send("POST", "/v1/transactions", partial(parts_of, name, nested=nested))
        for name in transaction()["properties"] for nested in (False, True)
    ],
}  # fmt: skip
"""Of each operation, requests about n of something."""


_MAY_BE_REFUSED = frozenset({"GET /v1/transactions/{id}"})
"""One of its ids is of no transaction."""


@scenario
async def test_every_operation_is_here() -> None:
    database = HistoryDatabase()
    app = create_app(database.model, database.log, database.changes)
    async with InProcess(app) as client:
        paths = (await client.request("GET", "/schema/openapi.json")).json()["paths"]
    found = {
        f"{method.upper()} {path}" for path, each in paths.items() for method in each
        if method in {"get", "put", "post", "delete"}
    }  # fmt: skip
    assert found == OPERATIONS.keys()


@pytest.mark.fault(52, "every operation with n, 2n, 4n of what it names and finds",
                   "calls and bytes grow as n")  # fmt: skip
@pytest.mark.parametrize("operation", OPERATIONS)
@scenario
async def test_costs_grow_as_what_is_named_and_found(operation: str) -> None:
    settings = FacadeSettings(
        page_entries_max=4 * SMALL,
        answer_bytes_max=1 << 26,
        tick_s=0,
        heartbeat_s=0.05,
        query_timeout_s=60,
    )
    costs: list[list[Any]] = [[] for _ in OPERATIONS[operation]]
    counter = Counter()
    for size in (SMALL, 2 * SMALL, 4 * SMALL):
        database = unchanging(size) if operation.startswith("GET ") else Sized(size)
        database.executing = operation == "POST /v1/sql"
        app = create_app(
            database.model, database.log, database.changes, settings, about=database.about()
        )
        async with InProcess(app) as client:
            for number, sized in enumerate(OPERATIONS[operation]):
                ask = sized(size)
                answer = await ask(client)  # what is made once has been made
                refused = operation in _MAY_BE_REFUSED
                assert answer.status < (500 if refused else 300), answer.body
                costs[number].append(await counter.worked(partial(ask, client)))
    counter.close()
    for number, each in enumerate(costs):
        assert not grows_faster(each), (operation, number, each)
