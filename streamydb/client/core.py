"""Transactions as flows: they yield requests, repeat them, and interpret the answers.

A transaction is sent again with the same bytes and
id, which is safe at any time; as soon as one of the attempts may have reached the log, nothing but
a verdict ends the matter, or `OutcomeUnknownError`.

A copy that comes to the log after the deadline is not executed, but one before it may have been,
too long ago for the database to remember. So that refusal is the verdict of the transaction only if
there was no other copy; else the verdict of the id is looked for among the results.

The verdict that a transaction lacks locks ends nothing: whoever meets it, a facade too, sends the
next attempt, and that one may commit. So who asks goes on to the verdict of the last attempt.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeGuard

from msgspec import UNSET

from streamydb.client.aborts import abort
from streamydb.client.errors import (
    ClientError,
    ClosedError,
    OutcomeUnknownError,
    RequestError,
    UnexpectedAnswerError,
)
from streamydb.client.problems import TransactionUnknownError, refusal
from streamydb.client.reads import check_text, tried
from streamydb.client.requests import Ask, Flow, Outcome, Pause, Pending, Send, perform
from streamydb.client.session import Retry, Session
from streamydb.client.transactions import Committed, Prepared, committed
from streamydb.constraints.locks import following, is_attempt, relocked
from streamydb.errors import UNTIMELY
from streamydb.limits import LOCK_ATTEMPTS_MAX
from streamydb.records import Result

__all__ = ["ask", "execute"]

_SETTLE_S: Final = 10.0
"""How long the verdict of a transaction is looked for whose deadline has passed, at least."""


def execute(
    session: Session, txn: Prepared, timeout_s: float | None = None, *, fresh: bool = False
) -> Flow[Committed]:
    """Send a transaction until there is a verdict, or no time left.

    ``fresh``: nobody has sent it before.

    One that lacks the locks of a unique constraint is sent again with them; what is sent then
    follows from the verdict, its id too.

    When the time has passed, nothing is sent any more: an attempt at the very end only looks for
    the verdict, if there may be one.

    Raises:
        AbortedError: it was executed and wrote nothing.
        DeadlinePassedError: it was not executed, and will not be.
        OutcomeUnknownError: it may be in the log.
        ClientError: it is not in the log.
    """
    retry = session.retry(timeout_s)
    request: Send | Ask = Send(*txn, retry.wait_s())
    uncertain, alone, attempts = False, fresh, 1
    while True:
        fault: ClientError | None = None
        sought, position = txn.id, None
        try:
            outcome = yield from perform(request)
            _require_own(request.id, outcome)
        except ClientError as error:
            fault = error
            if _is_untimely(error):
                session.saw(0, error.members.get("ts_ms", 0))
            if _is_untimely(error) and not alone:
                return (yield from _settled(session, txn, retry, error))
            uncertain = uncertain or error.uncertain
        else:
            if isinstance(outcome, Result):
                again = _again(txn, request, outcome)
                if again is None or attempts >= LOCK_ATTEMPTS_MAX:
                    if outcome.code in UNTIMELY and not alone:
                        return (yield from _settled(session, txn, retry, None))
                    return _conclude(session, outcome)
                txn, attempts = again, attempts + 1
                request = Send(*txn, retry.wait_s())
                continue
            uncertain = True
            sought, position = outcome.id or txn.id, outcome.position
        alone = alone and not uncertain
        pause = retry.again(fault) if fault is None or _may_pass(fault) else None
        if pause is not None:
            yield from _paused(pause, OutcomeUnknownError(*txn) if uncertain else None)
        late = not retry.left_s()
        if pause is None or (late and not uncertain):
            if not uncertain and fault is not None:
                raise fault
            raise OutcomeUnknownError(*txn) from fault
        asks = late or position is not None
        wait_s = retry.wait_s()
        request = Ask(sought, position, wait_s) if asks else Send(*txn, wait_s)


def _require_own(txn_id: str, outcome: Outcome) -> None:
    """Refuse the verdict of another transaction.

    Raises:
        UnexpectedAnswerError: it is one.
    """
    if outcome.id is not None and not is_attempt(outcome.id, txn_id):
        detail = f"The answer is about transaction {outcome.id}, and not about {txn_id}."
        raise UnexpectedAnswerError(detail, 200)


def _paused(pause: Pause, unknown: OutcomeUnknownError | None) -> Flow[None]:
    """Pause; ``unknown`` is the end if the client is closed and something may be in the log."""
    try:
        yield from perform(pause)
    except ClosedError as error:
        if unknown is None:
            raise
        raise unknown from error


def _again(txn: Prepared, request: Send | Ask, result: Result) -> Prepared | None:
    """Return what is to be sent after a verdict: the next attempt; None if the verdict is final.

    After an attempt of a facade it is ours once more: the facade goes on from there. What it
    answers to that is final, because it has gone on as far as it does.
    """
    if result.id == txn.id:
        again = relocked(*txn, result)
        return None if again is None else Prepared(*again)
    lacking = isinstance(request, Ask) and following(request.id, result) is not None
    return txn if lacking else None


def _settled(
    session: Session, txn: Prepared, retry: Retry, fault: ClientError | None
) -> Flow[Committed]:
    """Find the verdict of a transaction one of whose copies came after the deadline.

    No copy is executed any more, and those that came before have their verdicts in the results.
    Only a search that has seen all results says that there is none.
    """
    wait = session.retry(max(retry.left_s(), _SETTLE_S))
    try:
        found = yield from _found(txn, wait, wait.left_s)
    except ClientError as error:
        raise OutcomeUnknownError(*txn) from (fault or error)
    return _conclude(session, found)


def ask(session: Session, txn: Prepared, timeout_s: float | None = None) -> Flow[Committed]:
    """Look for the verdict of a transaction that was sent before; its bytes do not matter.

    Raises:
        InvalidParameterError: its id is no text.
        AbortedError: it was executed and wrote nothing.
        TransactionUnknownError: no verdict was found.
        OutcomeUnknownError: it is in the log, and its verdict, or that of an attempt with the locks
            that it lacked, did not come in time.
    """
    check_text("txn_id", txn.id)
    retry = session.retry(timeout_s)
    return _conclude(session, (yield from _found(txn, retry, retry.wait_s)))


def _found(txn: Prepared, retry: Retry, time_s: Callable[[], float]) -> Flow[Result]:
    """Look for the verdict of the last attempt of a transaction; raises as `ask`.

    Args:
        txn: its first attempt, as far as it is known.
        retry: the time there is.
        time_s: says how long each look may take.
    """
    lacking: list[Result] = []
    sought, position = txn.id, None
    while True:
        try:
            outcome = yield from tried(retry, partial(Ask, sought, position), time_s)
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
        elif (named := following(sought, outcome)) is None:
            return outcome
        elif not retry.left_s():
            raise OutcomeUnknownError(*txn)
        else:
            lacking.append(outcome)
            sought, position = named, None


def _may_pass(fault: ClientError) -> bool:
    """Return True if sending again may help."""
    return fault.retriable or fault.uncertain or isinstance(fault, TransactionUnknownError)


def _is_untimely(fault: ClientError) -> TypeGuard[RequestError]:
    """Return True if a copy was refused that came after the deadline, or too long before it."""
    return isinstance(fault, RequestError) and fault.code in UNTIMELY


def _conclude(session: Session, result: Result) -> Committed:
    """Return or raise what a verdict means."""
    again = result.duplicate
    session.saw(result.seq, result.ts_ms if again is UNSET else again.ts_ms)
    if result.status == "committed":
        return committed(result)
    if result.status == "aborted":
        raise abort(result)
    raise refusal(result.code or "", None, result.id)
