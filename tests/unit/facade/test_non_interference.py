"""Non-interference: what lies outside a token's scopes changes no byte of any answer to it.

Two databases differ only there (`tests.support.interference`). Every operation of the OpenAPI
document is sent to both, with every parameter, header and field of a body that it has; an operation
or a field for which nothing is known here fails the test until somebody says what is to be tried.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple, cast
from urllib.parse import quote

import pytest
from pydantic import SecretStr

from streamydb import limits
from streamydb.client import session as session_module
from streamydb.facade import FacadeSettings, create_app
from streamydb.facade.auth import Caller
from streamydb.facade.console import stats as stats_module
from streamydb.facade.console.contention import Contention
from streamydb.facade.console.stats import _contention
from streamydb.facade.kv import _ReadBody
from streamydb.facade.sql_endpoint import _Body, _Statement, _Statements
from streamydb.records.transaction_schema import transaction
from streamydb.testing.in_process import HttpAnswer, InProcess, scenario
from tests.support import interference as made

TOKENS: list[dict[str, Any]] = [
    {"name": "reader", "token": "reader-0123456789", "read": ["m/"]},
    {"name": "writer", "token": "writer-0123456789", "write": ["m/"]},
    {"name": "both", "token": "both-000123456789", "read": ["m/", "sql/m/"],
     "write": ["m/", "sql/m/"]},
    {"name": "none", "token": "none-000123456789"},
]  # fmt: skip
LAST = 24
_DECLARED = frozenset({"/schema", "/health/live", "/problems", "/problems/{slug}"})
"""Paths that look at no database."""


class Request(NamedTuple):
    """A request to both databases."""

    method: str
    target: str
    body: bytes = b""
    headers: Mapping[str, str] = MappingProxyType({})


class Pair:
    """Clients of two databases; what is sent to one is sent to the other."""

    def __init__(self, clients: list[InProcess]) -> None:
        self.clients = clients
        self.numbers = 0

    async def answers(self, request: Request, token: str) -> list[HttpAnswer]:
        """Send a request to both, with the same chance and the same time."""
        self.numbers += 1
        found = []
        headers = {**request.headers, "Authorization": f"Bearer {token}"}
        for client in self.clients:
            CHANCE.number = self.numbers
            if request.target.startswith("/v1/changes") and request.method == "GET":
                found.append(await _followed(client, request.target, headers))
            else:
                found.append(
                    await client.request(request.method, request.target, request.body, headers)
                )
        return found


async def _followed(client: InProcess, target: str, headers: dict[str, str]) -> HttpAnswer:
    """The changes of a stream up to the last transaction."""
    stream = await client.stream(target, headers)
    if stream.status == 200:
        begun = "since" in target or "Last-Event-ID" in headers
        await stream.until(b'{"resolved":%d}' % LAST if begun else b": heartbeat")
    else:
        await stream.end()
    stream.leave()
    changes = [part for part in stream.data.split(b"\n\n") if b"event: change" in part]
    told = b"\n\n".join(changes) if stream.status == 200 else stream.data
    return HttpAnswer(stream.status, stream.headers, told)


CHANCE = SimpleNamespace(number=0)


@pytest.fixture(autouse=True)
def alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small limits, one chance and one time for both."""
    monkeypatch.setattr(limits, "RANGE_KEYS_MAX", made.RANGE_KEYS)
    monkeypatch.setattr(limits, "TRANSACTION_VALUES_BYTES_MAX", made.VALUES_BYTES)
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=CHANCE.number))
    frozen = SimpleNamespace(time=lambda: 1_800_000_000.0, time_ns=lambda: 1_800_000_000 * 10**9)
    monkeypatch.setattr(session_module, "time", frozen)
    monkeypatch.setattr(stats_module, "time", frozen)


@asynccontextmanager
async def pair() -> AsyncIterator[Pair]:
    settings = FacadeSettings(
        tokens=SecretStr(json.dumps(TOKENS)), tick_s=0, heartbeat_s=0.05, in_flight_max=9
    )
    async with AsyncExitStack() as stack:
        clients = []
        for one in (True, False):
            database = made.Secretive(one=one)
            assert len(database.log.results) == LAST
            app = create_app(
                database.model, database.log, database.changes, settings,
                about=made.about(database),
            )  # fmt: skip
            clients.append(await stack.enter_async_context(InProcess(app)))
        yield Pair(clients)


def shown(answer: HttpAnswer) -> tuple[int, dict[str, str], bytes]:
    """All of an answer; of metrics what is no time, and not how others' transactions ended."""
    if answer.headers.get("content-type", "").startswith("text/plain"):
        lines = answer.body.split(b"\n")
        kept = [line for line in lines if not re.search(rb"_seconds|facade_results|_created", line)]
        headers = {k: v for k, v in answer.headers.items() if k != "content-length"}
        return answer.status, headers, b"\n".join(kept)
    return answer.status, answer.headers, answer.body


async def documented(client: InProcess) -> dict[str, Any]:
    found = await client.request("GET", "/schema/openapi.json")
    return cast("dict[str, Any]", found.json()["paths"])


def requests(paths: dict[str, Any], *, bodies: bool) -> Iterator[Request]:
    """Requests of all operations; with bodies or without."""
    for path, operations in paths.items():
        for method, operation in operations.items():
            kind = method.upper()
            if kind not in {"GET", "PUT", "POST", "DELETE"} or path in _DECLARED:
                continue
            if ("requestBody" in operation or kind == "DELETE") is bodies:
                for target in targets(path):
                    yield from varied(kind, target, path, operation)


def targets(path: str) -> list[str]:
    """A path with each of what its part may be."""
    parts = re.findall(r"\{(\w+)\}", path)
    if not parts:
        return [path]
    (name,) = parts
    return [path.replace(f"{{{name}}}", quote(text, safe="")) for text in made.PATHS[name]]


def varied(kind: str, target: str, path: str, operation: dict[str, Any]) -> Iterator[Request]:
    """An operation with each of its bodies, and with each of its parameters and headers."""
    contents = list(BODIES[path]()) if "requestBody" in operation else [b""]
    yield from (Request(kind, target, body) for body in contents)
    for parameter in operation.get("parameters", ()):
        name, place = parameter["name"], parameter["in"]
        for text in made.PARAMETERS[name] if place != "path" else ():
            if place == "header":
                yield Request(kind, target, contents[0], {name: text})
            else:
                for more in ("", "&prefix=m/") if path == "/v1/kv" and name != "prefix" else ("",):
                    query = f"{name}={quote(text, safe='')}{more}"
                    yield Request(kind, f"{target}?{query}", contents[0])
                if path == "/v1/changes":
                    yield Request(kind, f"{target}?since=0&prefix=m/&{query}".replace(
                        "since=0&prefix=m/&since", "prefix=m/&since"
                    ).replace("prefix=m/&prefix", "prefix"))  # fmt: skip


def transactions() -> Iterator[bytes]:
    for _, parts in made.transactions():
        for each in made.made(parts):
            yield made.encoded(each)


KEY_LISTS = [["m/1"], ["m/1", "m/none"], ["s/1"], ["m/1", "s/1"], []]
POINTS: dict[str, list[Any]] = {
    "at": [9], "consistency": ["strong", "snapshot"], "min_version": [9],
}  # fmt: skip
FIELDS: dict[Any, dict[str, list[Any]]] = {
    _ReadBody: {"keys": KEY_LISTS, **POINTS},
    _Body: {
        "sql": ["select * from kv", "select count(*), sum(version) from kv",
                "select estimated_size from duckdb_tables()", "select * from nothing"],
        "params": [[]], "prefix": ["m/", "s/"], **POINTS,
    },
    _Statement: {"sql": ["select 1"], "params": [[]]},
    _Statements: {
        "statements": [[{"sql": "create table t (id int primary key)"}],
                       [{"sql": "insert into t values (1)"}, {"sql": "select * from t"}]],
        "tables": ["m", "s"], **POINTS,
    },
}  # fmt: skip
"""What is tried for each field of a body."""


def fields_of(kind: Any) -> Iterator[bytes]:
    """Bodies of a class that vary one field each."""
    pools = {name: FIELDS[kind][name] for name in kind.__struct_fields__}
    least = {name: pools[name][0] for name in ("keys", "sql", "statements") if name in pools}
    for name, values in pools.items():
        for value in values:
            yield made.encoded({**least, name: value})


BODIES: dict[str, Any] = {
    "/v1/kv/{key}": lambda: [b"7", b'{"email": "ann"}'],
    "/v1/read": lambda: fields_of(_ReadBody),
    "/v1/query": lambda: fields_of(_Body),
    "/v1/sql": lambda: fields_of(_Statements),
    "/v1/transactions": transactions,
}
PROCESSES = frozenset({"/v1/query", "/v1/sql"})
"""Paths whose requests start processes: the tokens that tell something are enough."""


@pytest.mark.fault(53, "every operation with every field, to two databases that differ only there",
                   "the same bytes")  # fmt: skip
@pytest.mark.parametrize("token", [str(each["token"]) for each in TOKENS])
@pytest.mark.parametrize("bodies", [False, True], ids=["reads", "writes"])
@scenario
async def test_no_request_tells_what_lies_outside_the_scopes(
    token: str,
    bodies: bool,  # noqa: FBT001 - a parameter
) -> None:
    different: list[tuple[Any, ...]] = []
    answered = 0
    async with pair() as both:
        paths, _ = [await documented(client) for client in both.clients]
        for request in requests(paths, bodies=bodies):
            if request.target in PROCESSES and not token.startswith("both"):
                continue
            one, other = await both.answers(request, token)
            answered += one.status == 200
            if shown(one) != shown(other):
                different.append((request, one.status, one.body, other.status, other.body))
    assert not different, f"{len(different)} differ; first: " + "\n".join(
        str(each) for each in different[:5]
    )
    assert answered >= 5, "something was told at all"


def test_every_field_of_a_transaction_is_tried() -> None:
    def leaves(schema: dict[str, Any], path: str) -> Iterator[str]:
        if "oneOf" in schema:
            for each in schema["oneOf"]:
                yield from leaves(each, path)
        elif schema.get("type") == "array":
            yield from leaves(schema["items"], f"{path}[]")
        elif schema.get("properties"):
            for name, part in schema["properties"].items():
                yield from leaves(part, f"{path}.{name}")
        else:
            yield path

    tried = {path for path, _ in made.transactions()}
    for name, schema in transaction()["properties"].items():
        for path in leaves(schema, name):
            ranged = re.sub(r"([.\[\]]*(range|ranges\[\]))[.](prefix|start|end)$", r"\1", path)
            assert path in tried or ranged in tried, path


@scenario
async def test_the_bounds_are_where_one_more_is_too_much() -> None:
    """Else the test above would find nothing."""
    async with pair() as both:
        one_more = [{"key": "m/1", "exists": True}]
        writing = {"updates": [{"op": "put", "key": "m/none", "value": 1}]}
        for bounded, parts in ((made.BIG, {}), (made.BIG_WRITING, writing)):
            for extra in ([], one_more):
                body = made.encoded({"checks": [*bounded, *extra], **parts})
                for answer in await both.answers(Request("POST", "/v1/transactions", body), BOTH):
                    assert (answer.json()["code"] == "values-too-large") is bool(extra)
        more = {"range": {"start": "m/1", "end": "m/2"}, "count_ge": 0}
        for extra, aborts in (([], False), ([more], True)):
            body = made.encoded({"checks": [made.FULL, *extra]})
            for answer in await both.answers(Request("POST", "/v1/transactions", body), BOTH):
                assert (answer.json()["code"] == "range-too-large") is aborts


BOTH = "both-000123456789"


def test_groups_and_counts_of_hot_keys_are_told_to_who_may_read_all() -> None:
    told = []
    for one in (True, False):
        contention = Contention(60)
        for batch in made.Secretive(one=one).changes.all:
            contention.take(50, batch)
        sampler = cast("Any", SimpleNamespace(contention=contention))
        told.append(_contention(sampler, Caller("c", ["m/"]), 51))
        assert _contention(sampler, Caller("c", [""]), 51)["groups"]
        assert told[-1]["hot_keys"]
    assert told[0] == told[1]
