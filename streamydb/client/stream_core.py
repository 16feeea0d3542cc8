"""Following a stream: one unbroken sequence of records, made of as many pages as it takes."""

from __future__ import annotations

from collections import deque

from streamydb.client.errors import ClientError
from streamydb.client.problems import InvalidParameterError
from streamydb.client.reads import check_text
from streamydb.client.reconnection import Reconnecting
from streamydb.client.requests import Emissions, EmissionsPage, Flow, perform
from streamydb.client.session import Session, is_seq
from streamydb.records.emission import Emitted

After = int | tuple[int, int] | None
"""A seq, or (seq, index)."""

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
                page = yield from self._page()
            except ClientError as error:
                yield from trying.failed(error)
            else:
                trying.succeeded()
                self._ready.extend(page.records)
                self._cursor, self._more = page.cursor, page.more
        record = self._ready.popleft()
        self._session.saw(record.seq)
        return record

    def _page(self) -> Flow[EmissionsPage]:
        after = self._after if self._cursor is None else None
        timeout_s = self._session.options.timeout_s
        page: EmissionsPage = yield from perform(
            Emissions(self._stream, self._cursor, after, self._wait_s, self._wait_s + timeout_s)
        )
        return page


def _text(after: After) -> str | None:
    if after is None:
        return None
    parts = after if isinstance(after, tuple) else (after,)
    if not 1 <= len(parts) <= 2 or not all(map(is_seq, parts)):
        raise InvalidParameterError("`after` is a seq, or (seq, index).")
    return ".".join(map(str, parts))
