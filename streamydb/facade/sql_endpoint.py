"""`/v1/query`: SQL over one snapshot. `/v1/sql`: transactions of SQL on tables."""

from __future__ import annotations

import math
from typing import Annotated, Any

import msgspec

from streamydb.errors import ID_REUSED, ValueRejected
from streamydb.facade.answer import Answer, json_answer
from streamydb.facade.headers import Preference, idempotency_key, preference
from streamydb.facade.payloads import refuse_code
from streamydb.facade.problems import ProblemError
from streamydb.facade.queries import NoQuery
from streamydb.facade.request import FacadeRequest, RequestBody, StateBody, decode_fields
from streamydb.facade.sql_queries import SqlQuery
from streamydb.facade.sql_statements import SqlTransaction
from streamydb.facade.transactions import authorise_and_execute
from streamydb.limits import INTEGER_MAX, INTEGER_MIN, KEY_BYTES_MAX
from streamydb.records import Result, canonical

_REFUSED = {"constraint-violated", "query-invalid"}  # problems of statements that were executed


class _Body(StateBody):
    """The body of `POST /v1/query`."""

    sql: str
    params: list[str | int | float | bool | None] = msgspec.field(default_factory=list)
    prefix: str = ""


async def post_query(request: FacadeRequest, _: NoQuery) -> Answer:
    """Run one SELECT over the table `kv(key, value, version, ts)` at one snapshot."""
    services = request.services
    async with RequestBody(request) as raw:
        body = decode_fields(
            raw, _decode_query,
            'Send {"sql": "select …"} and, if you like, params, prefix, at, consistency.',
        )  # fmt: skip
        if len(body.prefix.encode()) > KEY_BYTES_MAX:
            raise ProblemError("invalid-parameter", f"A prefix has at most {KEY_BYTES_MAX} bytes.")
        if not all(map(_fits, body.params)):
            raise ProblemError(
                "invalid-parameter", "Numbers in `params` are finite and fit 64 bits."
            )
    query = SqlQuery(body.sql, tuple(body.params), body.prefix, body.point(request))
    return json_answer(await services.queries.run(query, request.client, request.client_name))


class _Statement(msgspec.Struct, forbid_unknown_fields=True):
    """One statement; `params` are the values of `?` or `$1`, or by the names of `$name`."""

    sql: str
    params: list[Any] | dict[str, Any] = []


class _Statements(StateBody):
    """The body of `POST /v1/sql`."""

    statements: Annotated[list[_Statement], msgspec.Meta(min_length=1)]
    tables: str = "main"


async def post_sql(request: FacadeRequest, _: NoQuery) -> Answer:
    """Execute statements on tables as one transaction: the rows and counts of each."""
    services = request.services
    headers = request.headers
    async with RequestBody(request) as raw:
        body = decode_fields(
            raw, _decode_statements,
            'Send {"statements": [{"sql": "select …", "params": []}]} and, if you like, tables, '
            "at, consistency.",
        )  # fmt: skip
        if not all(map(_storable, (each.params for each in body.statements))):
            raise ProblemError(
                "invalid-parameter", "Numbers in `params` are finite and fit 64 bits."
            )
    point, key, sent = body.point(request), idempotency_key(headers), False
    statements = tuple((each.sql, each.params) for each in body.statements)
    wanted = SqlTransaction(body.tables, statements, key, point)

    async def commit(txn_id: str, payload: bytes) -> Result:
        nonlocal sent
        sent = True
        wait = Preference(False, preference(headers).wait_s)
        pending, result = await authorise_and_execute(request, txn_id, payload, wait)
        if result is None:
            raise pending.problem()
        return result

    def refuse_repetition() -> None:
        if not sent and key is not None and services.writer.knows(key):
            raise refuse_code(ID_REUSED)

    # Statements that are sent again meet what they have written: a key that is taken, no row to
    # change. So they may be refused, or write nothing, before the log sees the id a second time.
    try:
        answer = await services.statements.run(wanted, request.client, commit, request.client_name)
    except ProblemError as problem:
        if problem.problem.slug in _REFUSED:
            refuse_repetition()
        raise
    refuse_repetition()
    return json_answer(answer)


def _storable(params: Any) -> bool:
    try:
        canonical(params)
    except ValueRejected:
        return False
    return True


def _fits(value: Any) -> bool:
    if isinstance(value, int):
        return INTEGER_MIN <= value <= INTEGER_MAX
    return not isinstance(value, float) or math.isfinite(value)


_decode_query = msgspec.json.Decoder(_Body).decode
_decode_statements = msgspec.json.Decoder(_Statements).decode
