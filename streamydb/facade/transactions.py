"""`/v1/transactions`: send a transaction, ask for its verdict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec
from msgspec import UNSET

from streamydb.errors import UNTIMELY
from streamydb.facade.answer import Answer, json_answer
from streamydb.facade.auth import ANYBODY, Caller
from streamydb.facade.explanation.core import visible_history
from streamydb.facade.headers import Preference, deadline_ms, idempotency_key, preference
from streamydb.facade.payloads import (
    authorise,
    parse,
    refuse_code,
    transaction_body,
    with_timely_deadline,
)
from streamydb.facade.ports import LogPosition
from streamydb.facade.problems import ProblemError
from streamydb.facade.queries import NoQuery, VerdictQuery
from streamydb.facade.request import FacadeRequest, RequestBody
from streamydb.facade.services import Services
from streamydb.facade.writes import PendingWrite, TransactionWriter, location, verdict_body
from streamydb.limits import INTEGER_MAX, LOCK_ATTEMPTS_MAX
from streamydb.records import Result
from streamydb.records.attempts import relocked
from streamydb.records.deadline import redated
from streamydb.records.times import clocks_told

_DATES_MAX: Final = 3  # how many deadlines a transaction is given at most

_Following: TypeAlias = Callable[[str, bytes, Result], tuple[str, bytes] | None]
"""Returns id and bytes of what is sent after the verdict on an id; None: it is the last."""

_Conclude: TypeAlias = Callable[[Result], tuple[int, dict[str, str]]]
"""Returns status and headers of the answer, or raises the problem that the verdict is."""


def _send_no_more(_txn_id: str, _payload: bytes, _result: Result) -> None:
    return


async def post_transaction(request: FacadeRequest, _: NoQuery) -> Answer:
    """Execute a transaction: 200 with its verdict, committed or aborted; 202 with Prefer."""
    headers = request.headers
    async with RequestBody(request) as body:
        txn_id, payload = transaction_body(body, idempotency_key(headers))
        return await execute(request, txn_id, payload, preference(headers))


async def get_transaction(request: FacadeRequest, query: VerdictQuery) -> Answer:
    """Ask for a verdict: 200 with it, 202 while it is not known yet."""
    outcome = await verdict_of(request, query.record)
    if isinstance(outcome, Answer):
        return outcome
    result = await request.services.writer.told_to(outcome, request.client)
    return json_answer(verdict_body(result, request.client))


async def verdict_of(request: FacadeRequest, record: str | None) -> Result | Answer:
    """Return the verdict on the id in the path, or the answer that it is not known yet."""
    txn_id = request.text
    if not txn_id:
        raise ProblemError("transaction-unknown", "The path has no id.")
    wait = preference(request.headers)
    outcome = await request.services.writer.ask(
        txn_id, position_in(record), wait, request.client_name
    )
    return _ask_later(outcome, wait) if isinstance(outcome, PendingWrite) else outcome


async def execute(
    request: FacadeRequest,
    txn_id: str,
    payload: bytes,
    wait: Preference,
    following: _Following = _send_no_more,
    conclude: _Conclude = lambda _: (200, {}),
) -> Answer:
    """Execute a transaction, with a deadline if it has none, and answer with its verdict. Raises
    ProblemError: whatever keeps it from being executed.
    """
    pending, result = await authorise_and_execute(request, txn_id, payload, wait, following)
    if result is None:
        return _ask_later(pending, wait)
    status, headers = conclude(result)
    place = {"Content-Location": location(pending.txn_id, None)}
    return json_answer(verdict_body(result, request.client), status, {**place, **headers})


async def authorise_and_execute(
    request: FacadeRequest,
    txn_id: str,
    payload: bytes,
    wait: Preference,
    following: _Following = _send_no_more,
) -> tuple[PendingWrite, Result | None]:
    """Execute a transaction: its verdict, committed or aborted, or None if it is to be asked for.
    Raises ProblemError: whatever keeps it from being executed.
    """
    services = request.services
    txn = parse(payload)
    authorise(txn, request.client)
    deadline = deadline_ms(request.headers)
    own = deadline is None and not txn.deadline
    payload = with_timely_deadline(payload, txn, deadline, services.writer.deadline_ms())
    with services.writer.in_flight.enter(request.client_name):
        pending, result = await append_and_wait(
            services, txn_id, payload, wait, request.client, own=own, following=following
        )
    if result is not None and result.status == "rejected":
        refusal = refuse_code(result.code or "")
        refusal.members |= {"id": result.id, "seq": result.seq}
        if result.code in UNTIMELY:
            clock_ms = services.log.clocks().local_ms
            clocks_text = clocks_told("the facade's", clock_ms, result.ts_ms)
            refusal.detail = f"{refusal.detail} {clocks_text}"
            refusal.members |= {"ts_ms": result.ts_ms, "facade_clock_ms": clock_ms}
            refusal.headers["Location"] = location(pending.txn_id, None)
        raise refusal
    return pending, result


async def append_and_wait(
    services: Services,
    txn_id: str,
    payload: bytes,
    wait: Preference,
    client: Caller = ANYBODY,
    *,
    own: bool,
    following: _Following = _send_no_more,
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
        pending, result = await _append_dated(writer, attempt, wait, client, own=own)
        again = None
        if result is not None:
            again = relocked(*attempt, result) or following(*attempt, result)
        if again is None or number == LOCK_ATTEMPTS_MAX - 1:
            break
        attempt = again
    return pending, result


async def _append_dated(
    writer: TransactionWriter,
    attempt: tuple[str, bytes],
    wait: Preference,
    client: Caller,
    *,
    own: bool,
) -> tuple[PendingWrite, Result | None]:
    """Append a transaction and wait for its verdict; with new deadlines if it is untimely. What was
    refused as untimely was not executed, and left its id free.
    """
    txn_id, payload = attempt
    for number in range(_DATES_MAX):
        pending = await writer.append(txn_id, payload, client)
        result = await writer.verdict(pending, wait)
        if result is None or result.code not in UNTIMELY or not own or number == _DATES_MAX - 1:
            break
        payload = redated(payload, writer.deadline_ms())
    return pending, result


def _ask_later(pending: PendingWrite, wait: Preference) -> Answer:
    return json_answer(pending.body(), 202, {**pending.headers(), **wait.applied()})


def position_in(record: str | None) -> LogPosition | None:
    """Return the place in the log that a text names. Raises ProblemError: invalid-parameter."""
    if record is None:
        return None
    partition, _, offset = record.partition(":")
    if int(offset) > INTEGER_MAX:
        raise ProblemError("invalid-parameter", "There is no such offset.", parameters=["record"])
    return LogPosition(int(partition), int(offset))


async def get_explanation(request: FacadeRequest, query: VerdictQuery) -> Answer:
    """Tell the life of a transaction: appends, order, plan, values met, checks, writes.

    What the log alone decides is computed; plans and times are shown as they were recorded.
    `unknown` names what is not known any more, and why. The token needs scopes for all keys
    that the transaction names. Values of keys that it may write and not read are hidden.
    """
    services, caller = request.services, request.client
    outcome = await verdict_of(request, query.record)
    if isinstance(outcome, Answer):
        return outcome
    visible = await services.writer.told_to(outcome, caller)
    verdict = msgspec.Raw(verdict_body(_alone(visible), caller))
    may_read = None if caller.may_read("") else caller.may_read
    life = await services.explainer.life(_alone(outcome), request.client_name, may_read)
    answer = msgspec.structs.asdict(visible_history(life, caller.may_read)) | {"verdict": verdict}
    body = msgspec.json.encode(answer)
    if len(body) > services.settings.answer_bytes_max:
        raise ProblemError("answer-too-large", "The explanation is larger than an answer may "
                           "be; `streamydb explain` shows it.")  # fmt: skip
    return json_answer(body)


def _alone(result: Result) -> Result:
    """The verdict of the transaction itself, also if a repetition has told it."""
    return msgspec.structs.replace(result, duplicate=UNSET)
