"""Transactions as flows: they yield requests, repeat them, and interpret the answers.

A transaction is sent again with the same bytes and
id, which is safe at any time; as soon as one of the attempts may have reached the log, nothing but
a verdict ends the matter, or `OutcomeUnknownError`.

A copy that comes to the log after the deadline is not executed, but one before it may have been,
too long ago for the database to remember. So that refusal is the verdict of the transaction only if
there was no other copy; else the verdict of the id is looked for among the results.

Nobody knows by how much this machine's clock differs from the brokers' before the first verdict. So
a deadline that the client has made itself may be past, or too far ahead. A transaction of which
there was no other copy is sent again then, with a deadline that follows from the verdict.

The verdict that a transaction lacks locks ends nothing: whoever meets it, a facade too, sends the
next attempt, and that one may commit. So who asks goes on to the verdict of the last attempt.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any, Final, TypeGuard, TypeVar

from msgspec import UNSET

from streamydb.client.errors import (
    ClientError,
    ClosedError,
    OutcomeUnknownError,
    RequestError,
    UnexpectedAnswerError,
)
from streamydb.client.problems import TransactionUnknownError, abort, problem, refusal
from streamydb.client.reads import check_text
from streamydb.client.requests import Ask, Flow, Outcome, Pause, Pending, Send
from streamydb.client.session import Retry, Session, perform, perform_with_retry
from streamydb.client.transactions import Committed, Prepared, committed
from streamydb.errors import UNTIMELY
from streamydb.limits import LOCK_ATTEMPTS_MAX
from streamydb.records import Result
from streamydb.records.attempts import following, is_attempt, relocked
from streamydb.records.deadline import redated
from streamydb.records.times import clocks_told

_R = TypeVar("_R")
_T = TypeVar("_T")
_DATES_MAX: Final = 3  # how many deadlines a transaction is given at most
_SETTLE_S: Final = 10.0
"""How long the verdict of a transaction is looked for whose deadline has passed, at least."""


async def drive(flow: Generator[_R, Any, _T], perform: Callable[[_R], Awaitable[Any]]) -> _T:
    """Run a flow to its end: it yields requests, of whatever kind, and is sent the answers."""
    try:
        request = next(flow)
        while True:
            try:
                answer = await perform(request)
            except Exception as error:  # noqa: BLE001 - the flow decides what it means
                request = flow.throw(error)
            else:
                request = flow.send(answer)
    except StopIteration as end:
        value: _T = end.value
        return value
    finally:
        flow.close()


def execute(
    session: Session,
    txn: Prepared,
    timeout_s: float | None = None,
    *,
    fresh: bool = False,
    dated: Callable[[], int] | None = None,
) -> Flow[Committed]:
    """Send a transaction until there is a verdict, or no time left.

    ``fresh``: nobody has sent it before. ``dated``: returns a deadline by what the session knows
    now; None: the deadline is the caller's.

    One that lacks the locks of a unique constraint is sent again with them; what is sent then
    follows from the verdict, its id too.

    When the time has passed, nothing is sent any more: an attempt at the very end only looks for
    the verdict, if there may be one.

    Raises AbortedError: it was executed and wrote nothing; DeadlinePassedError: it was not
    executed, and will not be; OutcomeUnknownError: it may be in the log; ClientError: it is not in
    the log.
    """
    retry, first = session.retry(timeout_s), txn
    request: Send | Ask = Send(*txn, retry.wait_s())
    uncertain, alone, attempts, dates = False, fresh, 1, 1
    while True:
        sought, position = txn.id, None
        outcome = yield from _perform_once(session, request)
        fault = outcome if isinstance(outcome, ClientError) else None
        if isinstance(outcome, Result):
            again = _next_attempt(txn, request, outcome)
            if again is None or attempts >= LOCK_ATTEMPTS_MAX:
                return _conclude(session, outcome)
            txn, attempts = again, attempts + 1
            request = Send(*txn, retry.wait_s())
            continue
        if fault is not None and _is_untimely(fault):
            if not alone:
                return (yield from _settle(session, txn, retry, fault))
            again = None if dates >= _DATES_MAX else _with_new_deadline(first, dated, fault)
            if again is not None and again != first and retry.left_s():
                txn, first, dates = again, again, dates + 1
                request = Send(*txn, retry.wait_s())
                continue
        if isinstance(outcome, Pending):
            uncertain = True
            sought, position = outcome.id or txn.id, outcome.position
        uncertain = uncertain or (fault is not None and fault.uncertain)
        alone = alone and not uncertain
        pause = retry.again(fault) if fault is None or _may_pass(fault) else None
        if pause is not None:
            yield from _pause(pause, OutcomeUnknownError(*txn) if uncertain else None)
        late = not retry.left_s()
        if pause is None or (late and not uncertain):
            if not uncertain and fault is not None:
                raise fault
            raise OutcomeUnknownError(*txn) from fault
        asks = late or position is not None
        wait_s = retry.wait_s()
        request = Ask(sought, position, wait_s) if asks else Send(*txn, wait_s)


def _perform_once(session: Session, request: Send | Ask) -> Flow[Result | Pending | ClientError]:
    """Return the outcome of a request, or its fault; learn the commit time that it tells. The
    verdict of another transaction is a fault, and nothing is learnt from it.
    """
    sent_ms = None if isinstance(request, Ask) else session.wall_ms()
    try:
        outcome: Result | Pending = yield from perform(request)
        _require_own(request.id, outcome)
    except ClientError as error:
        return _with_clocks(session, error, sent_ms) if _is_untimely(error) else error
    if isinstance(outcome, Result):
        if outcome.code in UNTIMELY:
            session.saw(outcome.seq)
            fault = refusal(outcome.code or "", None, outcome.id)
            fault.members["ts_ms"] = outcome.ts_ms
            return _with_clocks(session, fault, sent_ms)
        session.saw(0, _commit_ms(outcome), sent_ms)
    return outcome


def _require_own(txn_id: str, outcome: Outcome) -> None:
    """Refuse the verdict of another transaction. Raises UnexpectedAnswerError: it is one."""
    if outcome.id is not None and not is_attempt(outcome.id, txn_id):
        detail = f"The answer is about transaction {outcome.id}, and not about {txn_id}."
        raise UnexpectedAnswerError(detail, 200)


def _pause(pause: Pause, unknown: OutcomeUnknownError | None) -> Flow[None]:
    try:
        yield from perform(pause)
    except ClosedError as error:
        if unknown is None:
            raise
        raise unknown from error


def _next_attempt(txn: Prepared, request: Send | Ask, result: Result) -> Prepared | None:
    """Return what is to be sent after a verdict: the next attempt; None if the verdict is final.
    After an attempt of a facade it is ours once more: the facade goes on from there. What it
    answers to that is final, because it has gone on as far as it does.
    """
    if result.id == txn.id:
        again = relocked(*txn, result)
        return None if again is None else Prepared(*again)
    lacking = isinstance(request, Ask) and following(request.id, result) is not None
    return txn if lacking else None


def _settle(session: Session, txn: Prepared, retry: Retry, fault: ClientError) -> Flow[Committed]:
    """Find the verdict of a transaction one of whose copies came after the deadline. No copy is
    executed any more, and those that came before have their verdicts in the results. Only a search
    that has seen all results says that there is none.
    """
    wait = session.retry(max(retry.left_s(), _SETTLE_S))
    try:
        verdict = yield from _find_verdict(txn, wait, wait.left_s)
    except ClientError:
        raise OutcomeUnknownError(*txn) from fault
    if verdict.code in UNTIMELY:
        raise fault
    return _conclude(session, verdict)


def ask(session: Session, txn: Prepared, timeout_s: float | None = None) -> Flow[Committed]:
    """Look for the verdict of a transaction that was sent before; its bytes do not matter.

    Raises InvalidParameterError: its id is no text; AbortedError: it was executed and wrote
    nothing; TransactionUnknownError: no verdict was found; OutcomeUnknownError: it is in the log,
    and its verdict, or that of an attempt with the locks that it lacked, did not come in time.
    """
    check_text("txn_id", txn.id)
    retry = session.retry(timeout_s)
    return _conclude(session, (yield from _find_verdict(txn, retry, retry.wait_s)))


def _find_verdict(txn: Prepared, retry: Retry, time_s: Callable[[], float]) -> Flow[Result]:
    """Look for the verdict of the last attempt; ``time_s`` says how long each look may take."""
    lacking: list[Result] = []
    sought, position = txn.id, None
    while True:
        try:
            outcome = yield from perform_with_retry(retry, partial(Ask, sought, position), time_s)
            _require_own(sought, outcome)
        except TransactionUnknownError as error:
            if not lacking:
                raise
            if len(lacking) >= LOCK_ATTEMPTS_MAX:
                return lacking[-1]
            raise OutcomeUnknownError(*txn) from error
        if isinstance(outcome, Pending):
            position = outcome.position
            pause = retry.again(None)
            if pause is None:
                raise OutcomeUnknownError(*txn)
            yield from perform(pause)
        elif outcome.code in UNTIMELY and position is not None:
            position = None  # the verdict of this copy; there may be another one
        elif (next_id := following(sought, outcome)) is None:
            return outcome
        elif not retry.left_s():
            raise OutcomeUnknownError(*txn)
        else:
            lacking.append(outcome)
            sought, position = next_id, None


def _with_new_deadline(
    txn: Prepared, dated: Callable[[], int] | None, fault: RequestError
) -> Prepared | None:
    """Return a transaction with another deadline; None if the caller gave it, or it is unknown."""
    if dated is None or "ts_ms" not in fault.members:
        return None
    return Prepared(txn.id, redated(txn.payload, dated()))


def _with_clocks(session: Session, fault: RequestError, sent_ms: int | None) -> RequestError:
    """Learn the commit time of a copy that was refused; return its error with the clocks."""
    commit_ms, clock_ms = fault.members.get("ts_ms"), session.wall_ms()
    if not isinstance(commit_ms, int):
        return fault
    session.saw(0, commit_ms, sent_ms)
    clocks_text = clocks_told("this machine's", clock_ms, commit_ms)
    members = {**fault.members, "clock_ms": clock_ms}
    detail = f"{fault.detail} {clocks_text}"
    return problem(fault.slug, fault.status, detail, fault.retry_after_s, members)


def _commit_ms(result: Result) -> int:
    return result.ts_ms if result.duplicate is UNSET else result.duplicate.ts_ms


def _may_pass(fault: ClientError) -> bool:
    return fault.retriable or fault.uncertain or isinstance(fault, TransactionUnknownError)


def _is_untimely(fault: ClientError) -> TypeGuard[RequestError]:
    """Return True if a copy was refused that came after the deadline, or too long before it."""
    return isinstance(fault, RequestError) and fault.code in UNTIMELY


def _conclude(session: Session, result: Result) -> Committed:
    session.saw(result.seq, _commit_ms(result))
    if result.status == "committed":
        return committed(result)
    if result.status == "aborted":
        raise abort(result)
    raise refusal(result.code or "", None, result.id)
