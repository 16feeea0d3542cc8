"""Arbitrary functions as transactions: reads become version checks, writes become updates.

An attempt reads at one snapshot, so that the function never sees a torn state, and commits only if
every key that it read has its version still, and every range that it scanned its keys: then the
reads hold at the commit's place in the order as well (optimistic concurrency control with backward
validation, Kung and Robinson 1981). On a conflict the function is called again, at a snapshot that
includes what it collided with.

A function that wrote nothing needs no commit: all it saw was one state.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from streamydb.client import requests
from streamydb.client.core import execute
from streamydb.client.errors import ClosedError, UnsafeScanError
from streamydb.client.problems import (
    CheckFailedError,
    ConflictError,
    InvalidParameterError,
    SnapshotGoneError,
    refusal,
)
from streamydb.client.reads import RangeScan, check_key, read, scan_page
from streamydb.client.requests import Flow, Freshness
from streamydb.client.session import Session, perform
from streamydb.client.transactions import prepare
from streamydb.errors import NULL_VALUE, ValueRejected
from streamydb.records import canonical, decode_value
from streamydb.records.ranges import ScanRange, first_behind

_SYSTEM, _BEHIND_SYSTEM = "$", "%"
_FIRST: Final = "\0"

_ENDLESS: Final = (
    "A function under run() that writes scans a range with an end: give the scan a prefix, or an "
    "end. Keys that begin with `$` cannot be in it, because the database itself writes those."
)


def range_checks(scan: RangeScan, seq: int) -> list[dict[str, Any]]:
    """Return the checks that what was seen of a scan, at a snapshot, is so still.
    Raises UnsafeScanError: the range has no end, or may have keys of the database itself.
    """
    if scan.whole is None:
        return []
    prefix, (begin, end) = scan.keys.prefix, _bounds(scan)
    alone = prefix and (begin, end) == (prefix, first_behind(prefix))
    endless = end is None and not alone
    if endless or (begin < _BEHIND_SYSTEM and (end or _BEHIND_SYSTEM) > _SYSTEM):
        raise UnsafeScanError(_ENDLESS)
    if scan.whole:
        bounds = {"prefix": prefix} if alone else {"start": begin or _FIRST, "end": end}
        return [{"range": bounds, "count": scan.count, "version_le": seq}]
    if scan.last is None:
        return []
    before = {"start": begin or _FIRST, "end": scan.last.key}
    return [
        {"range": before, "count": scan.count - 1, "version_le": seq},
        {"key": scan.last.key, "version": scan.last.version},
    ]


def has_yet_to_reach(scan: RangeScan, keys: Iterable[str]) -> bool:
    """Return True if a scan has yet to come to one of these keys."""
    if scan.ended:
        return False
    begin, end = _bounds(scan)
    last = "" if scan.last is None else scan.last.key
    return any(begin <= key > last and (end is None or key < end) for key in keys)


def with_writes(
    scan: RangeScan, page: Sequence[requests.Stored], last: requests.Stored | None
) -> list[requests.Stored]:
    """Return a page that was read of a scan, behind the entry ``last``, with the scan's own writes.
    What was written has the version that was read, 0 if there was none.
    """
    after = "" if last is None else last.key
    entries = {stored.key: stored for stored in page}
    for key, data in scan.own.items():
        if key > after and (scan.whole or (page and key <= page[-1].key)):
            before = entries.pop(key, None)
            if data is not None:
                version = 0 if before is None else before.version
                entries[key] = requests.Stored(key, msgspec.Raw(data), version, 0)
    return [entries[key] for key in sorted(entries)]


def _bounds(scan: RangeScan) -> tuple[str, str | None]:
    keys = scan.keys
    ends = [each for each in (first_behind(keys.prefix), keys.end) if each is not None]
    return max(keys.prefix, keys.start or ""), min(ends, default=None)


class Attempt:
    """One call of the function: its reads so far at snapshot `seq`, and its writes.

    ``lost``: the snapshot is not kept any more, so that the attempt is void.
    """

    def __init__(self, session: Session, freshness: Freshness) -> None:
        self.seq: int | None = None
        self.lost = False
        self._session = session
        self._freshness = freshness
        self._seen: dict[str, requests.Stored | None] = {}
        self._writes: dict[str, bytes | None] = {}
        self._ttls: dict[str, int] = {}
        self._scans: list[RangeScan] = []
        self._ended = False

    def entries(self, keys: Sequence[str]) -> Flow[dict[str, requests.Entry]]:
        """Return the entries of keys; those of own writes have the version that was read, or 0."""
        self._check_open()
        missing = [key for key in keys if key not in self._seen and key not in self._writes]
        if missing:
            yield from self._fetch(missing)
        return {key: self._entry(key) for key in keys}

    def scan(self, keys: ScanRange, limit: int | None) -> RangeScan:
        self._check_open()
        begun = RangeScan(self._session, keys, self._place(), limit)
        begun.own = {
            key: data for key, data in self._writes.items() if has_yet_to_reach(begun, [key])
        }
        self._scans.append(begun)
        return begun

    def page(self, scan: RangeScan) -> Flow[list[requests.Stored]]:
        """Read the next page of a scan, with what the function had written when it began."""
        self._check_open()
        if self.seq is None:
            yield from self._fetch([])
        while not scan.ended:
            unseen, last, left = has_yet_to_reach(scan, scan.own), scan.last, scan.left
            scan.freshness = self._place()
            try:
                page = yield from scan_page(scan)
            except SnapshotGoneError:
                self.lost = True
                raise
            if unseen:
                page = with_writes(scan, page, last)[:left]
                scan.left = None if left is None else left - len(page)
                scan.ended = scan.whole is True or scan.left == 0
            if page:
                return page
        return []

    def put(self, key: str, value: Any, ttl_ms: int | UnsetType = UNSET) -> None:
        """Write a value when the function has ended; reads see it from now on. The key ends
        `ttl_ms` after the commit, or never. Raises InvalidKeyError, InvalidJsonError,
        InvalidTransactionError: key or value cannot be.
        """
        try:
            data = canonical(value)
        except ValueRejected as fault:
            raise refusal(fault.code, str(fault)) from None
        if value is None:
            raise refusal(NULL_VALUE)
        self._write(key, data)
        if ttl_ms is not UNSET:
            self._ttls[key] = ttl_ms

    def delete(self, key: str) -> None:
        """Remove a key when the function has ended; raises as `put`."""
        self._write(key, None)

    def commit(self) -> Flow[None]:
        """Commit what was written, if anything was; raises as `execute`.
        Raises UnsafeScanError: it has scanned a range that has no end, or the database's own keys.
        """
        if not self._writes:
            return
        checks: list[dict[str, Any]] = [
            {"key": key, "version": 0 if stored is None else stored.version}
            for key, stored in self._seen.items()
        ]
        for scan in self._scans:
            checks += range_checks(scan, self.seq or 0)
        txn = prepare(
            self._session.new_id(),
            checks=checks,
            updates=[self._update(key, data) for key, data in self._writes.items()],
            deadline_ms=self._session.deadline_ms(),
        )
        yield from execute(self._session, txn, fresh=True, dated=self._session.deadline_ms)

    def _update(self, key: str, data: bytes | None) -> dict[str, Any]:
        if data is None:
            return {"op": "delete", "key": key}
        ends = {"ttl_ms": self._ttls[key]} if key in self._ttls else {}
        return {"op": "put", "key": key, "value": decode_value(data), **ends}

    def end(self) -> None:
        self._ended = True

    def _fetch(self, keys: list[str]) -> Flow[None]:
        """Read keys at the snapshot, which others may have taken meanwhile (as with gather)."""
        try:
            reading = yield from read(self._session, keys, self._place())
            if self.seq is not None and reading.seq != self.seq:
                reading = yield from read(self._session, keys, self._place())
        except SnapshotGoneError:
            self.lost = True
            raise
        self.seq = reading.seq
        self._seen |= reading.entries

    def _place(self) -> Freshness:
        return self._freshness if self.seq is None else Freshness(at=self.seq)

    def _entry(self, key: str) -> requests.Entry:
        stored = self._seen.get(key)
        if key in self._writes:
            data = self._writes[key]
            value = None if data is None else decode_value(data)
            return requests.Entry(key, value, 0 if stored is None else stored.version, 0)
        return requests.Entry(key, None, 0, 0) if stored is None else stored.entry()

    def _write(self, key: str, data: bytes | None) -> None:
        self._check_open()
        check_key(key)
        self._writes[key] = data
        self._ttls.pop(key, None)

    def _check_open(self) -> None:
        if self._ended:
            raise ClosedError("The function under run() has ended: use its view only within it.")


def run(
    session: Session, consistency: requests.Consistency | None, conflicts_max: int | None
) -> Flow[Any]:
    """Call the function, by `ResumeAttempt`, until it commits. Raises ConflictError: too often in
    vain.
    """
    calls_max = session.options.conflicts_max if conflicts_max is None else conflicts_max
    retry = session.retry()
    freshness = session.freshness(consistency)
    conflict: CheckFailedError | None = None
    for number in range(1, calls_max + 1):
        attempt = Attempt(session, freshness)
        try:
            value: Any = yield requests.ResumeAttempt(attempt)
            if inspect.iscoroutine(value):
                value.close()
                raise InvalidParameterError(  # noqa: TRY301 - the attempt ends with it
                    "run() awaits a coroutine function only with connect_async."
                )
        except Exception:
            if not attempt.lost:
                raise
        else:
            if not attempt.lost:
                conflict = yield from _commit(attempt)
                if conflict is None:
                    return value
                freshness = session.floor(session.seq)
        finally:
            attempt.end()
        if number < calls_max:
            yield from perform(requests.Pause(retry.pause_s()))
    failed = () if conflict is None else conflict.failed
    members = {} if conflict is None else conflict.members
    raise ConflictError(
        f"The function met a conflict in each of {calls_max} calls; nothing was written. Let it do "
        "less, or allow more calls (conflicts_max).",
        members=members,
        failed=failed,
    )


def _commit(attempt: Attempt) -> Flow[CheckFailedError | None]:
    try:
        yield from attempt.commit()
    except CheckFailedError as error:
        return error
    return None
