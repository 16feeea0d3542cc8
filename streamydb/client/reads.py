"""Reads, scans and queries as flows; each is tried again after whatever may pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from streamydb.client import requests
from streamydb.client.errors import UnexpectedAnswerError
from streamydb.client.problems import (
    AnswerTooLargeError,
    InvalidKeyError,
    InvalidParameterError,
    TooLargeError,
)
from streamydb.client.requests import Flow, Freshness
from streamydb.client.session import Retry, Session, perform_with_retry
from streamydb.client.transactions import as_list
from streamydb.errors import ValueRejected
from streamydb.limits import KEY_BYTES_MAX
from streamydb.records import canonical
from streamydb.records.ranges import ScanRange
from streamydb.records.table import Table


def read(
    session: Session, keys: Sequence[str], freshness: Freshness, timeout_s: float | None = None
) -> Flow[requests.Reading]:
    """Read keys at one snapshot, in as many requests as that takes. Raises InvalidKeyError."""
    for key in keys:
        check_key(key)
    retry = session.retry(timeout_s)
    unique_keys = list(dict.fromkeys(keys))
    size = session.options.read_keys
    first = yield from _read(retry, unique_keys[:size], freshness)
    entries = dict(first.entries)
    for begin in range(size, len(unique_keys), size):
        more = yield from _read(retry, unique_keys[begin : begin + size], Freshness(at=first.seq))
        entries |= more.entries
    session.saw(first.seq)
    return requests.Reading(first.seq, entries)


def query(
    session: Session,
    sql: str,
    params: Sequence[Any],
    prefix: str,
    freshness: Freshness,
    timeout_s: float | None = None,
) -> Flow[Table]:
    """Run a query.
    Raises InvalidParameterError: the prefix is longer than any key, the parameters are no list, or
    one is no JSON; ClientError: it was refused, took too much, or its answer would be too large.
    """
    check_bounds(ScanRange(prefix))
    values = as_list(params, (str, bytes, Mapping))
    check_sql(sql, values)
    make = partial(requests.Query, sql, tuple(values), prefix, freshness)
    result = yield from perform_with_retry(session.retry(timeout_s), make)
    session.saw(result.seq)
    return result


def current_seq(session: Session, freshness: Freshness, timeout_s: float | None) -> Flow[int]:
    reading = yield from read(session, (), freshness, timeout_s)
    return reading.seq


class RangeScan:
    """A scan on its way: which keys, which snapshot, how many entries at most, where it is.

    Attributes:
        last: the last entry so far.
        whole: all entries have been read; None: nothing has been asked yet.
        own: what its function had written in the range before; None: removed.
    """

    def __init__(
        self, session: Session, keys: ScanRange, freshness: Freshness, limit: int | None
    ) -> None:
        self.session = session
        self.keys = keys
        self.freshness = freshness
        self.left = limit
        self.cursor: str | None = None
        self.ended = limit is not None and limit < 1
        self.count = 0
        self.last: requests.Stored | None = None
        self.whole: bool | None = None
        self.own: dict[str, bytes | None] = {}


def scan_page(scan: RangeScan, timeout_s: float | None = None) -> Flow[list[requests.Stored]]:
    """Read the next page of a scan; an empty one is the last. Raises InvalidParameterError."""
    check_bounds(scan.keys)
    if scan.freshness.at == 0:  # before the first transaction
        scan.ended = scan.whole = True
    if scan.ended:
        return []
    session = scan.session
    page_max = session.options.page_entries
    limit = page_max if scan.left is None else min(page_max, scan.left)
    make = partial(requests.Scan, scan.keys, limit, scan.cursor, scan.freshness)
    retry = session.retry(timeout_s)
    page = yield from perform_with_retry(retry, make, retry.wait_s)
    if not all(scan.keys.has(entry.key) for entry in page.entries):
        raise UnexpectedAnswerError("The answer has keys outside of the range.", 200)
    session.saw(page.seq)
    scan.freshness, scan.cursor = Freshness(at=page.seq), page.cursor
    scan.left = None if scan.left is None else scan.left - len(page.entries)
    scan.whole = page.cursor is None
    scan.ended = scan.whole or scan.left == 0
    scan.count += len(page.entries)
    scan.last = page.entries[-1] if page.entries else scan.last
    return page.entries


def check_key(key: str) -> None:
    """Refuse text that is empty, too long, or not Unicode. Raises InvalidKeyError."""
    if not isinstance(key, str) or not 1 <= _size(key) <= KEY_BYTES_MAX:
        raise InvalidKeyError(f"A key is text of 1 to {KEY_BYTES_MAX} bytes of UTF-8.")


def check_bounds(keys: ScanRange) -> None:
    """Refuse a bound that is too long, or not Unicode. Raises InvalidParameterError."""
    for bound in (keys.prefix, keys.start or "", keys.end or ""):
        if not isinstance(bound, str) or _size(bound) > KEY_BYTES_MAX:
            raise InvalidParameterError(
                f"prefix, start and end are text of at most {KEY_BYTES_MAX} bytes of UTF-8."
            )


def check_text(name: str, text: str) -> None:
    """Refuse what is no Unicode text. Raises InvalidParameterError: names the parameter."""
    try:
        text.encode()
    except (AttributeError, UnicodeEncodeError):
        raise InvalidParameterError(f"`{name}` is Unicode text.") from None


def check_sql(sql: str, params: Any) -> None:
    """Refuse SQL that is no text, and parameters that are no JSON. Raises InvalidParameterError."""
    try:
        canonical([sql, msgspec.to_builtins(params, str_keys=True)])
    except (ValueRejected, TypeError) as fault:
        raise InvalidParameterError(f"SQL is text, its parameters are JSON: {fault}") from None


def _size(text: str) -> int:
    """Bytes of UTF-8, more than any key may have for what is no Unicode."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return KEY_BYTES_MAX + 1


def _read(retry: Retry, keys: list[str], freshness: Freshness) -> Flow[requests.Reading]:
    """Read keys in one request, or in halves if they or their values are too many for one."""
    if freshness.at == 0:  # before the first transaction
        return requests.Reading(0, dict.fromkeys(keys))
    try:
        reading = yield from perform_with_retry(
            retry, partial(requests.Read, tuple(keys), freshness), retry.wait_s
        )
    except (AnswerTooLargeError, TooLargeError):
        if len(keys) < 2:
            raise
    else:
        if reading.entries.keys() != set(keys):
            raise UnexpectedAnswerError("The answer has other keys than were asked for.", 200)
        return reading
    half = len(keys) // 2
    left = yield from _read(retry, keys[:half], freshness)
    right = yield from _read(retry, keys[half:], Freshness(at=left.seq))
    return requests.Reading(left.seq, {**left.entries, **right.entries})
