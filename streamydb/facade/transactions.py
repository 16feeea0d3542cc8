"""`/v1/transactions`: send a transaction, ask for its verdict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from litestar import Response, get, post

from streamydb.constraints.locks import relocked
from streamydb.errors import UNTIMELY
from streamydb.facade import parameters as q
from streamydb.facade.auth import ANYBODY, Caller
from streamydb.facade.body import reading
from streamydb.facade.content import CONTENT_PROBLEMS
from streamydb.facade.gate import context_of
from streamydb.facade.headers import Preference, deadline_ms, idempotency_key, preference
from streamydb.facade.openapi import answers
from streamydb.facade.paths import text_of
from streamydb.facade.payloads import authorise, parse, refuse_code, timely, transaction_body
from streamydb.facade.ports import LogPosition
from streamydb.facade.problems import ProblemError
from streamydb.facade.services import (
    AnyRequest,
    Sent,
    Services,
    client_of,
    headers_of,
    json_response,
    services_of,
)
from streamydb.facade.writes import PendingWrite, TransactionWriter, location, verdict_body
from streamydb.limits import INTEGER_MAX, LOCK_ATTEMPTS_MAX
from streamydb.records import Result
from streamydb.records.deadline import redated
from streamydb.records.times import clocks_told

__all__ = [
    "Course", "decided", "execute", "executed", "get_transaction", "post_transaction",
    "send_transaction", "verdict_of",
]  # fmt: skip

_POST_PROBLEMS: Final = (
    "invalid-json", "invalid-parameter", "unauthorized", "forbidden", "cross-origin",
    "body-timeout", "too-large", "invalid-transaction", "id-reused", "deadline-passed",
    "too-many-requests", *CONTENT_PROBLEMS,
    "overloaded", "log-unavailable", "verdict-unknown",
)  # fmt: skip
_GET_PROBLEMS: Final = (
    "invalid-parameter", "unauthorized", "forbidden", "transaction-unknown", "too-many-requests",
    "overloaded", "log-unavailable", "not-ready",
)  # fmt: skip
_DATES_MAX: Final = 3
"""How many deadlines a transaction is given at most."""

_Following: TypeAlias = Callable[[str, bytes, Result], tuple[str, bytes] | None]


class Course(Protocol):
    """The way of a request through its verdicts, to its answer."""

    def following(self, txn_id: str, payload: bytes, result: Result) -> tuple[str, bytes] | None:
        """Return id and bytes of what is sent after the verdict on an id; None: it is the last."""

    def conclude(self, result: Result) -> tuple[int, dict[str, str]]:
        """Return the status and the headers of the answer; raise the problem that the verdict is.
        """


class _Plain:
    """The way of a transaction as it is: any verdict is the answer."""

    def following(self, *_: object) -> None:
        """Send nothing more."""

    def conclude(self, _: Result) -> tuple[int, dict[str, str]]:
        """Answer with the verdict."""
        return 200, {}


_PLAIN: Final = _Plain()


@post(
    "/v1/transactions",
    status_code=200,
    responses=answers(*_POST_PROBLEMS),
)
async def post_transaction(request: AnyRequest) -> Response[bytes]:
    """Execute a transaction: 200 with its verdict, committed or aborted; 202 with Prefer."""
    return await send_transaction(request, services_of(request))


async def send_transaction(request: Sent, services: Services) -> Response[bytes]:
    """Answer a request to execute a transaction.

    Raises:
        ProblemError: as `post_transaction` declares.
    """
    headers = headers_of(request)
    async with reading(request, services) as body:
        txn_id, payload = transaction_body(body, idempotency_key(headers))
        return await execute(request, services, txn_id, payload, preference(headers))


@get(
    "/v1/transactions/{id:path}",
    responses=answers(*_GET_PROBLEMS),
)
async def get_transaction(request: AnyRequest, record: q.AsRecord = None) -> Response[bytes]:
    """Ask for a verdict: 200 with it, 202 while it is not known yet."""
    found = await verdict_of(request, record)
    if isinstance(found, Response):
        return found
    client = client_of(request)
    told = await services_of(request).writer.told_to(found, client)
    return json_response(verdict_body(told, client))


async def verdict_of(request: AnyRequest, record: str | None) -> Result | Response[bytes]:
    """Ask for the verdict on the id in the path; if it is not known yet, return that answer.

    Raises:
        ProblemError: there is no such transaction, or the log cannot be read.
    """
    context = context_of(request.scope)
    txn_id = text_of(context.name or b"")
    if not txn_id:
        raise ProblemError("transaction-unknown", "The path has no id.")
    wanted = preference(headers_of(request))
    found = await services_of(request).writer.ask(
        txn_id, _position_in(record), wanted, context.client_name
    )
    return _ask_later(found, wanted) if isinstance(found, PendingWrite) else found


async def execute(
    request: Sent,
    services: Services,
    txn_id: str,
    payload: bytes,
    wanted: Preference,
    course: Course = _PLAIN,
) -> Response[bytes]:
    """Execute a transaction and answer with its verdict.

    Args:
        request: who sends it.
        services: the parts of the facade.
        txn_id: its id.
        payload: its bytes; it gets a deadline if it has none.
        wanted: how long the client waits.
        course: what is sent after a verdict, and how the last one is answered.

    Raises:
        ProblemError: whatever keeps it from being executed.
    """
    pending, result = await decided(
        request, services, txn_id, payload, wanted, course.following
    )
    if result is None:
        return _ask_later(pending, wanted)
    status, headers = course.conclude(result)
    place = {"Content-Location": location(pending.txn_id, None)}
    return json_response(verdict_body(result, client_of(request)), status, {**place, **headers})


async def decided(
    request: Sent, services: Services, txn_id: str, payload: bytes, wanted: Preference,
    following: _Following = _PLAIN.following,
) -> tuple[PendingWrite, Result | None]:
    """Execute a transaction: its verdict, committed or aborted, or None if it is to be asked for.

    Raises:
        ProblemError: whatever keeps it from being executed.
    """
    txn = parse(payload)
    authorise(txn, client_of(request))
    given = deadline_ms(headers_of(request))
    own = given is None and not txn.deadline
    payload = timely(payload, txn, given, services.writer.deadline_ms())
    with services.writer.in_flight.enter(context_of(request.scope).client_name):
        pending, result = await executed(
            services, txn_id, payload, wanted, client_of(request), own=own, following=following
        )
    if result is not None and result.status == "rejected":
        refusal = refuse_code(result.code or "")
        refusal.members |= {"id": result.id, "seq": result.seq}
        if result.code in UNTIMELY:
            clock_ms = services.log.clocks().local_ms
            told = clocks_told("the facade's", clock_ms, result.ts_ms)
            refusal.detail = f"{refusal.detail} {told}"
            refusal.members |= {"ts_ms": result.ts_ms, "facade_clock_ms": clock_ms}
            refusal.headers["Location"] = location(pending.txn_id, None)
        raise refusal
    return pending, result


async def executed(
    services: Services, txn_id: str, payload: bytes, wanted: Preference, client: Caller = ANYBODY,
    *, own: bool, following: _Following = _PLAIN.following,
) -> tuple[PendingWrite, Result | None]:
    """Append a transaction and wait for its verdict; again with the locks that it needs, and with
    what follows the verdict.

    These locks need no scope of the client: they follow from writes that have one.

    Attempts after the first follow from the verdicts, so that a client which sends the same again
    gets the same. ``own``: the deadline is this facade's; if the brokers' clock is another than was
    known, the transaction gets another one.
    """
    writer = services.writer
    attempt = (txn_id, payload)
    for number in range(LOCK_ATTEMPTS_MAX):
        pending, result = await _dated(writer, attempt, wanted, client, own=own)
        again = None
        if result is not None:
            again = relocked(*attempt, result) or following(*attempt, result)
        if again is None or number == LOCK_ATTEMPTS_MAX - 1:
            break
        attempt = again
    return pending, result


async def _dated(
    writer: TransactionWriter, attempt: tuple[str, bytes], wanted: Preference, client: Caller,
    *, own: bool,
) -> tuple[PendingWrite, Result | None]:
    """Append a transaction and wait for its verdict; with new deadlines if it is untimely.

    What was refused as untimely was not executed, and left its id free.
    """
    txn_id, payload = attempt
    for number in range(_DATES_MAX):
        pending = await writer.append(txn_id, payload, client)
        result = await writer.verdict(pending, wanted)
        if result is None or result.code not in UNTIMELY or not own or number == _DATES_MAX - 1:
            break
        payload = redated(payload, writer.deadline_ms())
    return pending, result


def _ask_later(pending: PendingWrite, wanted: Preference) -> Response[bytes]:
    """The answer about a transaction that has no verdict yet."""
    return json_response(pending.body(), 202, {**pending.headers(), **wanted.applied()})


def _position_in(record: str | None) -> LogPosition | None:
    """The place in the log that a query names.

    Raises:
        ProblemError: invalid-parameter, if there can be no such place.
    """
    if record is None:
        return None
    partition, _, offset = record.partition(":")
    if int(offset) > INTEGER_MAX:
        raise ProblemError("invalid-parameter", "There is no such offset.", parameters=["record"])
    return LogPosition(int(partition), int(offset))
