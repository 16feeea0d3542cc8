"""Reads, scans and transactions as flows: what is asked, what is tried again, what an answer means.

A read is tried again after whatever may pass. A transaction is sent again with the same bytes and
id, which is safe at any time; as soon as one of the attempts may have reached the log, nothing but
a verdict ends the matter, or `OutcomeUnknownError`.

A copy that comes to the log after the deadline is not executed, but one before it may have been,
too long ago for the database to remember. So that refusal is the verdict of the transaction only if
there was no other copy; else the verdict of the id is looked for among the results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeGuard, TypeVar

from msgspec import UNSET

from streamydb.client.aborts import abort
from streamydb.client.errors import ClientError, OutcomeUnknownError, RequestError
from streamydb.client.problems import (
    AnswerTooLargeError,
    InvalidKeyError,
    InvalidParameterError,
    TooLargeError,
    TransactionUnknownError,
    refusal,
)
from streamydb.client.requests import (
    Ask,
    Flow,
    Freshness,
    Query,
    Read,
    Reading,
    Request,
    Scan,
    Send,
    Stored,
    perform,
)
from streamydb.client.session import Retry, Session
from streamydb.client.transactions import Committed, Prepared, committed
from streamydb.constraints.locks import relocked
from streamydb.errors import UNTIMELY
from streamydb.limits import KEY_BYTES_MAX, LOCK_ATTEMPTS_MAX
from streamydb.records import Result
from streamydb.records.table import Table

__all__ = ["Range", "ask", "check_key", "current_seq", "execute", "query", "read", "scan_page"]

_R = TypeVar("_R")
_SETTLE_S: Final = 10.0
"""How long the verdict of a transaction is looked for whose deadline has passed, at least."""


def read(
    session: Session, keys: Sequence[str], freshness: Freshness, timeout_s: float | None = None
) -> Flow[Reading]:
    """Read keys at one snapshot, in as many requests as that takes.

    Raises:
        InvalidKeyError: one of them can be no key.
    """
    for key in keys:
        check_key(key)
    retry = session.retry(timeout_s)
    wanted = list(dict.fromkeys(keys))
    size = session.options.read_keys
    first = yield from _read(retry, wanted[:size], freshness)
    entries = dict(first.entries)
    for begin in range(size, len(wanted), size):
        more = yield from _read(retry, wanted[begin : begin + size], Freshness(at=first.seq))
        entries |= more.entries
    session.saw(first.seq)
    return Reading(first.seq, entries)


def query(
    session: Session,
    sql: str,
    params: Sequence[Any],
    prefix: str,
    freshness: Freshness,
    timeout_s: float | None = None,
) -> Flow[Table]:
    """Run a query.

    Raises:
        InvalidParameterError: the prefix is longer than any key.
        ClientError: it was refused, took too much, or its answer would be too large.
    """
    _check_bound(prefix)
    make = partial(Query, sql, tuple(params), prefix, freshness)
    found = yield from _tried(session.retry(timeout_s), make)
    session.saw(found.seq)
    return found


def current_seq(session: Session, freshness: Freshness, timeout_s: float | None) -> Flow[int]:
    """Return the seq of the state that a read would show now."""
    reading = yield from read(session, (), freshness, timeout_s)
    return reading.seq


class Range:
    """A scan on its way: which keys, which snapshot, where it is.

    Args:
        session: the client's state.
        prefix: only keys that begin with it.
        start: only keys from it on.
        end: only keys before it.
        freshness: the state to show.
        limit: most entries, all if it is None.
    """

    def __init__(
        self,
        session: Session,
        prefix: str,
        start: str | None,
        end: str | None,
        freshness: Freshness,
        limit: int | None,
    ) -> None:
        """Begin at the first key."""
        self.session = session
        self.bounds = (prefix, start, end)
        self.freshness = freshness
        self.left = limit
        self.cursor: str | None = None
        self.ended = limit is not None and limit < 1


def scan_page(wanted: Range, timeout_s: float | None = None) -> Flow[list[Stored]]:
    """Read the next page of a scan; an empty one is the last.

    Raises:
        InvalidParameterError: a bound is longer than any key.
    """
    prefix, start, end = wanted.bounds
    for bound in (prefix, start or "", end or ""):
        _check_bound(bound)
    if wanted.ended or wanted.freshness.at == 0:
        return []
    session = wanted.session
    most = session.options.page_entries
    limit = most if wanted.left is None else min(most, wanted.left)
    make = partial(Scan, prefix, start, end, limit, wanted.cursor, wanted.freshness)
    retry = session.retry(timeout_s)
    page = yield from _tried(retry, make, retry.wait_s)
    session.saw(page.seq)
    wanted.freshness, wanted.cursor = Freshness(at=page.seq), page.cursor
    wanted.left = None if wanted.left is None else wanted.left - len(page.entries)
    wanted.ended = page.cursor is None or wanted.left == 0
    return page.entries


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
    """What became of a transaction one of whose copies came after the deadline.

    No copy is executed any more, and those that came before have their verdicts in the results.
    Only a search that has seen all results says that there is none.
    """
    wait = session.retry(max(retry.left_s(), _SETTLE_S))
    try:
        found = yield from _tried(wait, partial(Ask, txn.id, None))
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
        outcome = yield from _tried(retry, partial(Ask, txn.id, position), retry.wait_s)
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


def check_key(key: str) -> None:
    """Refuse what can be no key.

    Raises:
        InvalidKeyError: it is empty, too long, or not Unicode text.
    """
    if not isinstance(key, str) or not 1 <= _size(key) <= KEY_BYTES_MAX:
        raise InvalidKeyError(f"A key is text of 1 to {KEY_BYTES_MAX} bytes of UTF-8.")


def _check_bound(bound: str) -> None:
    if not isinstance(bound, str) or _size(bound) > KEY_BYTES_MAX:
        raise InvalidParameterError(
            f"prefix, start and end are text of at most {KEY_BYTES_MAX} bytes of UTF-8."
        )


def _size(text: str) -> int:
    """Bytes of UTF-8, more than any key may have for what is no Unicode."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return KEY_BYTES_MAX + 1


def _read(retry: Retry, keys: list[str], freshness: Freshness) -> Flow[Reading]:
    """Read keys in one request, or in halves if they or their values are too many for one."""
    if freshness.at == 0:  # before the first transaction
        return Reading(0, dict.fromkeys(keys))
    try:
        reading = yield from _tried(retry, partial(Read, tuple(keys), freshness), retry.wait_s)
    except (AnswerTooLargeError, TooLargeError):
        if len(keys) < 2:
            raise
    else:
        return reading
    half = len(keys) // 2
    left = yield from _read(retry, keys[:half], freshness)
    right = yield from _read(retry, keys[half:], Freshness(at=left.seq))
    return Reading(left.seq, {**left.entries, **right.entries})


def _tried(
    retry: Retry, make: Callable[[float], Request[_R]], time_s: Callable[[], float] | None = None
) -> Flow[_R]:
    """Perform a request that changes nothing, again after whatever may pass.

    Args:
        retry: the time there is.
        make: returns the request with the time that it may take.
        time_s: says how long that is; None: all that is left.
    """
    time_s = time_s or retry.left_s
    while True:
        try:
            return (yield from perform(make(time_s())))
        except ClientError as error:
            pause = retry.again(error) if error.retriable else None
            if pause is None:
                raise
        yield from perform(pause)


def _may_pass(fault: ClientError) -> bool:
    """Whether sending again may help."""
    return fault.retriable or fault.uncertain or isinstance(fault, TransactionUnknownError)


def _is_untimely(fault: ClientError) -> TypeGuard[RequestError]:
    """Whether a copy was refused that came after the deadline, or too long before it."""
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
