"""Transactions as flows: they yield requests, repeat them, and interpret the answers.

A transaction is sent again with the same bytes and
id, which is safe at any time; as soon as one of the attempts may have reached the log, nothing but
a verdict ends the matter, or `OutcomeUnknownError`.

A copy that comes to the log after the deadline is not executed, but one before it may have been,
too long ago for the database to remember. So that refusal is the verdict of the transaction only if
there was no other copy; else the verdict of the id is looked for among the results.
"""

from __future__ import annotations

from functools import partial
from typing import Final, TypeGuard

from msgspec import UNSET

from streamydb.client.aborts import abort
from streamydb.client.errors import ClientError, OutcomeUnknownError, RequestError
from streamydb.client.problems import TransactionUnknownError, refusal
from streamydb.client.reads import tried
from streamydb.client.requests import (
    Ask,
    Flow,
    Send,
    perform,
)
from streamydb.client.session import Retry, Session
from streamydb.client.transactions import Committed, Prepared, committed
from streamydb.constraints.locks import relocked
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
        position: str | None = None
        try:
            outcome = yield from perform(request)
        except ClientError as error:
            fault = error
            if _is_untimely(error):
                session.saw(0, error.members.get("ts_ms", 0))
            if _is_untimely(error) and not alone:
                return (yield from _settled(session, txn, retry, error))
            uncertain = uncertain or error.uncertain
        else:
            if isinstance(outcome, Result):
                again = relocked(*txn, outcome)
                if again is None or attempts >= LOCK_ATTEMPTS_MAX:
                    if outcome.code in UNTIMELY and not alone:
                        return (yield from _settled(session, txn, retry, None))
                    return _conclude(session, outcome)
                txn, uncertain, attempts = Prepared(*again), False, attempts + 1
                request = Send(*txn, retry.wait_s())
                continue
            uncertain = True
            position = outcome.position
        alone = alone and not uncertain
        pause = retry.again(fault) if fault is None or _may_pass(fault) else None
        if pause is not None:
            yield from perform(pause)
        late = not retry.left_s()
        if pause is None or (late and not uncertain):
            if not uncertain and fault is not None:
                raise fault
            raise OutcomeUnknownError(*txn) from fault
        asks = late or position is not None
        wait_s = retry.wait_s()
        request = Ask(txn.id, position, wait_s) if asks else Send(*txn, wait_s)


def _settled(
    session: Session, txn: Prepared, retry: Retry, fault: ClientError | None
) -> Flow[Committed]:
    """Find the verdict of a transaction one of whose copies came after the deadline.

    No copy is executed any more, and those that came before have their verdicts in the results.
    Only a search that has seen all results says that there is none.
    """
    wait = session.retry(max(retry.left_s(), _SETTLE_S))
    try:
        found = yield from tried(wait, partial(Ask, txn.id, None))
    except ClientError as error:
        raise OutcomeUnknownError(*txn) from (fault or error)
    if isinstance(found, Result):
        return _conclude(session, found)
    raise OutcomeUnknownError(*txn) from fault


def ask(session: Session, txn: Prepared, timeout_s: float | None = None) -> Flow[Committed]:
    """Look for the verdict of a transaction that was sent before; its bytes do not matter.

    Raises:
        AbortedError: it was executed and wrote nothing.
        TransactionUnknownError: no verdict was found.
        OutcomeUnknownError: it is in the log, and its verdict did not come in time.
    """
    retry = session.retry(timeout_s)
    position: str | None = None
    while True:
        outcome = yield from tried(retry, partial(Ask, txn.id, position), retry.wait_s)
        if isinstance(outcome, Result) and outcome.code in UNTIMELY and position is not None:
            position = None  # the verdict of this copy; there may be another one
            continue
        if isinstance(outcome, Result):
            return _conclude(session, outcome)
        position = outcome.position
        pause = retry.again(None)
        if pause is None:
            raise OutcomeUnknownError(*txn)
        yield from perform(pause)


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
