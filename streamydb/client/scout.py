"""Reconnaissance: a stored procedure runs on a snapshot, in the client, and its keys are noted.

A key that was not read yet counts as absent until the end of that run, which means nothing, but
tells other keys that the procedure probably touches. They are read together, and it is run again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from msgspec import UNSET

from streamydb import records as r
from streamydb.client.errors import RequestError
from streamydb.client.reads import RangeScan, read, scan_page
from streamydb.client.requests import Flow, Freshness, Stored
from streamydb.client.session import Session
from streamydb.records.ranges import Bounds, Range
from streamydb.records.updates import apply_update

_TOGETHER: Final = 256
"""Keys that one run notes to be read."""


class Unread(BaseException):
    """Reconnaissance cannot go on: it needs a range that was not read yet, or many keys."""

    def __init__(self, what: Bounds | None = None) -> None:
        super().__init__(what)
        self.what = what


@dataclass(slots=True)
class Scout:
    """The host of a procedure under reconnaissance: it notes the keys and ranges that are touched.

    ``unknown``: keys that were not read yet. Where there are none, and no `Unread`, all is known.
    """

    seen: dict[str, Stored | None]
    scans: dict[Bounds, list[Stored]]
    touched: dict[str, bool] = field(default_factory=dict)
    ranges: dict[Bounds, None] = field(default_factory=dict)
    unknown: dict[str, None] = field(default_factory=dict)
    expires: bool = True
    weighs: bool = True

    def may(self, key: str, *, write: bool) -> bool:
        """Note a key."""
        self.touched[key] = self.touched.get(key, False) or write
        return True

    def look(self, key: str) -> tuple[bytes | None, int]:
        """Return the value and the version of a key at the snapshot."""
        if key not in self.seen:
            if len(self.unknown) == _TOGETHER:
                raise Unread
            self.unknown[key] = None
        stored = self.seen.get(key)
        return (None, 0) if stored is None else (stored.data, stored.version)

    def fetch(self, key: str, write: bool) -> bytes | None:  # noqa: FBT001 - as in `view.Host`
        """Note a key; return its value at the snapshot."""
        self.may(key, write=write)
        return self.look(key)[0]

    def around(self, bounds: Bounds) -> Bounds:
        """Note a range."""
        self.ranges[bounds] = None
        return bounds

    def entries(self, declared: Bounds) -> list[tuple[str, bytes]]:
        """Return the keys of a range and their values at the snapshot."""
        if declared[0] >= declared[1]:
            return []
        if declared not in self.scans:
            raise Unread(declared)
        return [(stored.key, stored.data) for stored in self.scans[declared]]

    def apply(self, update: r.Update, before: bytes | None) -> bytes | None:
        """Return the value of a key after an update."""
        return apply_update(update, before, 0)


def look(
    session: Session, timeout_s: float | None, scout: Scout, what: Bounds | None, place: Freshness
) -> Flow[None]:
    """Read the unknown keys at the snapshot; or a range, which is sure if there are none."""
    if what is None or scout.unknown:
        first, *more = scout.unknown
        try:
            reading = yield from read(session, [first, *more], place, timeout_s)
        except RequestError:
            if not more:
                raise
            reading = yield from read(session, [first], place, timeout_s)  # only this one is sure
        scout.seen |= reading.entries
        return
    named = Range.of(what)
    start, end = (None if bound is UNSET else bound for bound in (named.start, named.end))
    scan = RangeScan(session, named.prefix or "", start, end, place, None)
    found: list[Stored] = []
    while page := (yield from scan_page(scan, timeout_s)):
        found += page
    scout.scans[what] = found


def pins(scout: Scout, seq: int) -> list[dict[str, Any]]:
    """Return checks that keys and ranges are as they were seen."""
    seen = [(key, scout.seen[key]) for key in scout.touched if key in scout.seen]
    keys: list[dict[str, Any]] = [
        {"key": key, "version": 0 if found is None else found.version} for key, found in seen
    ]
    return keys + [
        {"range": msgspec.to_builtins(Range.of(bounds)), "count": len(found), "version_le": seq}
        for bounds, found in scout.scans.items()
    ]
