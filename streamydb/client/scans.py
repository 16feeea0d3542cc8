"""Make checks of a transaction of what its function, under `run`, has scanned.

A check of a range says how many keys there were, and that none is newer than the snapshot. So it
fails if somebody has added, changed or removed a key there. Of a scan that was not read to its end,
only the part that was seen is checked.
"""

from __future__ import annotations

from typing import Any, Final

from streamydb.client.errors import UnsafeScanError
from streamydb.client.reads import Range

__all__ = ["holds", "range_checks"]

_HIGHEST: Final = 0x10FFFF
_SURROGATES: Final = range(0xD800, 0xE000)
_SYSTEM, _BEHIND_SYSTEM = "$", "%"
_FIRST: Final = "\0"

_ENDLESS: Final = (
    "A function under run() that writes scans a range with an end: give the scan a prefix, or an "
    "end. Keys that begin with `$` cannot be in it, because the database itself writes those."
)


def range_checks(scan: Range, seq: int) -> list[dict[str, Any]]:
    """Return the checks that what was seen of a scan, at a snapshot, is so still.

    Raises:
        UnsafeScanError: the range has no end, or may have keys of the database itself.
    """
    if scan.whole is None:
        return []
    prefix, (begin, end) = scan.bounds[0], _bounds(scan)
    alone = prefix and (begin, end) == (prefix, _behind(prefix))
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


def holds(scan: Range, key: str) -> bool:
    """Return True if a scan has yet to come to a key: its value there is that of the snapshot."""
    begin, end = _bounds(scan)
    passed = scan.ended or (scan.last is not None and key <= scan.last.key)
    return not passed and begin <= key and (end is None or key < end)


def _bounds(scan: Range) -> tuple[str, str | None]:
    """Return the first text in a scan's range, and the first behind it; None: there is none."""
    prefix, start, end = scan.bounds
    ends = [each for each in (_behind(prefix), end) if each is not None]
    return max(prefix, start or ""), min(ends, default=None)


def _behind(prefix: str) -> str | None:
    """Return the first text behind all that begin with a prefix; None: there is none."""
    for last in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[last]) + 1
        if code <= _HIGHEST:
            return prefix[:last] + chr(_SURROGATES.stop if code in _SURROGATES else code)
    return None
