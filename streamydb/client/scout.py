"""Reconnaissance: a stored procedure runs on a snapshot, in the client, and its keys are noted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import UNSET

from streamydb import records as r
from streamydb.client.reads import RangeScan, read, scan_page
from streamydb.client.requests import Flow, Freshness, Stored
from streamydb.client.session import Session
from streamydb.records.ranges import Bounds, Range
from streamydb.records.updates import apply_update

__all__ = ["Scout", "Unread", "look", "pins"]


class Unread(BaseException):
    """Reconnaissance needs a key, or a range, that was not read yet."""

    def __init__(self, what: str | Bounds) -> None:
        super().__init__(what)
        self.what = what


@dataclass(slots=True)
class Scout:
    """The host of a procedure under reconnaissance: it notes the keys and ranges that are touched.
    """

    seen: dict[str, Stored | None]
    scans: dict[Bounds, list[Stored]]
    touched: dict[str, bool] = field(default_factory=dict)
    ranges: dict[Bounds, None] = field(default_factory=dict)
    expires: bool = True

    def may(self, key: str, *, write: bool) -> bool:
        """Note a key."""
        self.touched[key] = self.touched.get(key, False) or write
        return True

    def look(self, key: str) -> tuple[bytes | None, int]:
        """Return the value and the version of a key at the snapshot."""
        if key not in self.seen:
            raise Unread(key)
        stored = self.seen[key]
        return (None, 0) if stored is None else (stored.data, stored.version)

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
    session: Session, timeout_s: float | None, scout: Scout, what: str | Bounds, place: Freshness
) -> Flow[None]:
    """Read a key, or a range, at the snapshot."""
    if isinstance(what, str):
        reading = yield from read(session, [what], place, timeout_s)
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
    versions = {key: 0 if found is None else found.version for key, found in scout.seen.items()}
    pins: list[dict[str, Any]] = [{"key": key, "version": seen} for key, seen in versions.items()]
    return pins + [
        {"range": msgspec.to_builtins(Range.of(bounds)), "count": len(found), "version_le": seq}
        for bounds, found in scout.scans.items()
    ]
