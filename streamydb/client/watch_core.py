"""Following the changes: one unbroken sequence made of as many streams as it takes.

A stream tells now and then up to which seq everything has been given. After a cut, the next one
begins there, and what was received already is dropped by (seq, number, key): no gap, no repetition.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from streamydb.client import requests
from streamydb.client.errors import ClientError
from streamydb.client.problems import InvalidParameterError
from streamydb.client.reads import check_bounds, check_text, current_seq
from streamydb.client.requests import Flow
from streamydb.client.session import Reconnecting, Session, is_seq, perform
from streamydb.records import canonical
from streamydb.records.decoder import condition, condition_form
from streamydb.records.emission import Emitted
from streamydb.records.ranges import ScanRange


class _Source(msgspec.Struct):
    seq: int


class _Transaction(msgspec.Struct):
    id: str
    total_order: int


class _Event(msgspec.Struct):
    """The data of an event `change`: the fields that are of use here."""

    key: str
    op: Literal["c", "u", "d"]
    before: Any
    after: Any
    ts_ms: int
    source: _Source
    transaction: _Transaction
    expires_ms: int | None = None


_decode = msgspec.json.Decoder(_Event).decode


def decode_event(data: bytes) -> requests.Change:
    """Return the change in the data of an event; msgspec's errors if there is none."""
    event = _decode(data)
    return requests.Change(
        key=event.key, op=event.op, before=event.before, value=event.after, seq=event.source.seq,
        number=event.transaction.total_order, ts_ms=event.ts_ms, txn_id=event.transaction.id,
        expires_ms=event.expires_ms,
    )  # fmt: skip


class Watching:
    """A sequence of changes on its way; all changes up to `seq` have been given."""

    def __init__(self, session: Session, wanted: requests.Selection, since: int | None) -> None:
        """Nothing is asked for yet. Raises InvalidParameterError: ``since`` is no seq."""
        if not (since is None or is_seq(since)):
            raise InvalidParameterError("`since` is a seq.")
        self.seq = since
        self._session = session
        self._wanted = wanted
        self._received = 0
        self._place, self._keys = (0, 0), set[str]()
        self._ready: deque[requests.Change | requests.Progress] = deque()
        self._open = self._started = False

    def start(self) -> Flow[None]:
        """Find out where to begin; the second time this does nothing."""
        if self._started:
            return
        if self.seq is None:
            self.seq = yield from current_seq(self._session, self._session.freshness(), None)
        self._received, self._started = self.seq, True

    def next(self) -> Flow[requests.Change]:
        """Return the next change, however long that takes. Raises ClientError: no connection for
        long.
        """
        yield from self.start()
        trying = Reconnecting(self._session)
        while True:
            change = self._given()
            if change is not None:
                return change
            try:
                events = yield from self._receive()
            except ClientError as error:
                yield from trying.failed(error)
            else:
                if events:
                    trying.succeeded()
                self._take(events)

    def _receive(self) -> Flow[list[requests.Event]]:
        """Wait for events, on a new stream if there is none."""
        if not self._open:
            yield from perform(requests.Open(self._received, self._wanted))
        self._open = False  # a failure ends it, and so does one who is cancelled: events are lost
        events: list[requests.Event] = yield from perform(requests.Receive())
        self._open = True
        return events

    def _take(self, events: list[requests.Event]) -> None:
        for event in events:
            if isinstance(event, requests.Change):
                if event.seq > self._received and self._is_new(event):
                    self._ready.append(event)
            elif isinstance(event, requests.Progress) and event.seq > self._received:
                self._received = event.seq
                self._ready.append(event)

    def _is_new(self, change: requests.Change) -> bool:
        """Note a change; return False for one that was received before. Keys that end at one seq
        may share a number: those of the last place are remembered.
        """
        place = (change.seq, change.number)
        if place < self._place or (place == self._place and change.key in self._keys):
            return False
        if place > self._place:
            self._place = place
            self._keys.clear()
        self._keys.add(change.key)
        return True

    def _given(self) -> requests.Change | None:
        """Take the next change that is ready, and the progress on both sides of it."""
        self._skip_progress()
        if not self._ready:
            return None
        change = self._ready.popleft()
        self._skip_progress()
        if isinstance(change, requests.Change):
            self._session.saw(change.seq)
            return change
        return None

    def _skip_progress(self) -> None:
        while self._ready and isinstance(self._ready[0], requests.Progress):
            self.seq = self._ready.popleft().seq


Condition = Mapping[str, Any]


def selection(
    keys: ScanRange, where: Condition | None, where_before: Condition | None
) -> requests.Selection:
    """Return the changes that a watch gives. Raises InvalidParameterError: a bound or condition is
    none.
    """
    check_bounds(keys)
    after = _condition("where", where, versioned=True)
    before = _condition("where_before", where_before, versioned=False)
    return requests.Selection(keys, after, before)


def _condition(name: str, check: Condition | None, *, versioned: bool) -> str | None:
    if check is None:
        return None
    if condition(check, versioned=versioned) is None:
        raise InvalidParameterError(condition_form(name, versioned=versioned))
    return canonical(dict(check)).decode()


After = int | tuple[int, int] | None  # a seq, or (seq, index)

# The longest wait that a facade grants unless it is set otherwise.
_WAIT_S = 15.0


class FollowedStream:
    """A stream's records on their way, after a transaction or one of its records.

    ``end``: stop when there are no more, instead of waiting for them.
    """

    def __init__(self, session: Session, stream: str, after: After, *, end: bool) -> None:
        check_text("name", stream)
        self._session = session
        self._stream = stream
        self._after = _text(after)
        self._wait_s = 0.0 if end else _WAIT_S
        self._cursor: str | None = None
        self._ready: deque[Emitted] = deque()
        self._more = True

    def next(self) -> Flow[Emitted | None]:
        """Return the next record, however long that takes; None at the end.
        Raises NoSuchStreamError: there is no such stream; ClientError: no connection could be made
        for long, or it must not be read.
        """
        trying = Reconnecting(self._session)
        while not self._ready:
            if not self._more and not self._wait_s:
                return None
            try:
                after = self._after if self._cursor is None else None
                timeout_s = self._session.options.timeout_s
                page: requests.EmissionsPage = yield from perform(
                    requests.Emissions(
                        self._stream, self._cursor, after, self._wait_s, self._wait_s + timeout_s
                    )
                )
            except ClientError as error:
                yield from trying.failed(error)
            else:
                trying.succeeded()
                self._ready.extend(page.records)
                self._cursor, self._more = page.cursor, page.more
        record = self._ready.popleft()
        self._session.saw(record.seq)
        return record


def _text(after: After) -> str | None:
    if after is None:
        return None
    parts = after if isinstance(after, tuple) else (after,)
    if not 1 <= len(parts) <= 2 or not all(map(is_seq, parts)):
        raise InvalidParameterError("`after` is a seq, or (seq, index).")
    return ".".join(map(str, parts))
