"""Make checks of a transaction of what its function, under `run`, has scanned.

A check of a range says how many keys there were, and that none is newer than the snapshot. So it
fails if somebody has added, changed or removed a key there. Of a scan that was not read to its end,
only the part that was seen is checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from streamydb.client.errors import UnsafeScanError
from streamydb.client.reads import RangeScan
from streamydb.client.requests import Stored
from streamydb.records.ranges import first_behind

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
    prefix, (begin, end) = scan.bounds[0], _bounds(scan)
    alone = prefix and (begin, end) == (prefix, first_behind(prefix))
    endless = end is None and not alone
    if endless or (begin < _BEHIND_SYSTEM and (end or _BEHIND_SYSTEM) > _SYSTEM):
        raise UnsafeScanError(_ENDLESS)
    if scan.whole:
        found = {"prefix": prefix} if alone else {"start": begin or _FIRST, "end": end}
        return [{"range": found, "count": scan.count, "version_le": seq}]
    if scan.last is None:
        return []
    before = {"start": begin or _FIRST, "end": scan.last.key}
    return [
        {"range": before, "count": scan.count - 1, "version_le": seq},
        {"key": scan.last.key, "version": scan.last.version},
    ]


def comes_to(scan: RangeScan, keys: Iterable[str]) -> bool:
    """Return True if a scan has yet to come to one of these keys."""
    if scan.ended:
        return False
    begin, end = _bounds(scan)
    last = "" if scan.last is None else scan.last.key
    return any(begin <= key > last and (end is None or key < end) for key in keys)


def with_writes(scan: RangeScan, page: Sequence[Stored], last: Stored | None) -> list[Stored]:
    """Return a page that was read of a scan, behind the entry ``last``, with the scan's own writes.

    What was written has the version that was read, 0 if there was none.
    """
    after = "" if last is None else last.key
    found = {stored.key: stored for stored in page}
    for key, data in scan.own.items():
        if key > after and (scan.whole or (page and key <= page[-1].key)):
            before = found.pop(key, None)
            if data is not None:
                found[key] = Stored(key, data, 0 if before is None else before.version, 0)
    return [found[key] for key in sorted(found)]


def _bounds(scan: RangeScan) -> tuple[str, str | None]:
    prefix, start, end = scan.bounds
    ends = [each for each in (first_behind(prefix), end) if each is not None]
    return max(prefix, start or ""), min(ends, default=None)
