"""Scans under `run`, and the checks that the Python client makes of them: so do other clients.

`python -m tests.clients.scans` writes `scans.json`; tests hold it and the TypeScript client against
the file.
"""

from __future__ import annotations

import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from msgspec import Raw

from streamydb.client.attempts import has_yet_to_reach, range_checks
from streamydb.client.errors import UnsafeScanError
from streamydb.client.reads import RangeScan
from streamydb.client.requests import Freshness, Stored
from streamydb.client.session import Session
from streamydb.records.ranges import ScanRange

__all__ = ["FILE", "made"]

FILE: Final = Path(__file__).with_name("scans.json")
_LETTERS: Final = "$%a\ud7ff\uffff\U00010000\U0010ffff"
_KEYS: Final = [first + second for first in _LETTERS for second in ("", *_LETTERS)]
_CASES: Final = 120


def made() -> dict[str, Any]:
    """Return keys, and cases with what the client makes of them."""
    dice = random.Random("scans")
    return {"keys": _KEYS, "cases": [_case(dice) for _ in range(_CASES)]}


def _case(dice: random.Random) -> dict[str, Any]:
    prefix = dice.choice(["", *_KEYS])
    start, end = (dice.choice([None, key]) for key in dice.choices(_KEYS, k=2))
    scan = RangeScan(Session(), ScanRange(prefix, start, end), Freshness(at=7), None)
    scan.whole = dice.choice([None, True, True, False])
    scan.ended = bool(scan.whole) or dice.random() < 0.2
    if scan.whole is not None and dice.random() < 0.8:
        scan.count, scan.last = dice.randint(1, 9), Stored(dice.choice(_KEYS), Raw(b"0"), 4, 0)
    checks: Any = "unsafe"
    with suppress(UnsafeScanError):
        checks = range_checks(scan, 7)
    return {
        "bounds": (prefix, start, end), "count": scan.count, "whole": scan.whole,
        "ended": scan.ended,
        "last": None if scan.last is None else scan.last.key, "checks": checks,
        "comes": [key for key in _KEYS if has_yet_to_reach(scan, [key])],
    }  # fmt: skip


if __name__ == "__main__":
    found = made()
    lines = ",\n".join(map(json.dumps, found["cases"]))
    keys = json.dumps(found["keys"])
    FILE.write_text(f'{{"keys": {keys}, "cases": [\n{lines}\n]}}\n', encoding="utf-8")
