"""When the tests that `make test` leaves out have last passed, and which of them to run next.

`make test-stalest MINUTES=20` runs those that passed longest ago, or never. Whoever works here runs
it now and then: a test that nobody runs grows old, and does not tell it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from streamydb.local.file_lock import file_lock, write_whole
from tools import reliability

__all__ = ["LONG", "LONG_FOLDERS", "MARKS", "note", "read", "stalest"]

LONG_FOLDERS: Final = ("docker", "browser", "clients", "connect", "stores")
"""Folders in `tests/` whose tests all have a mark of the folder's name."""

MARKS: Final = ("long", *LONG_FOLDERS)
"""Tests that have one of these marks are not part of `make test`."""

LONG: Final = Path(__file__).parents[1] / "bench" / "results" / "long.json"
_UNKNOWN_S: Final = 60.0
"""What a test is taken to last of which that is not known."""


def read(path: Path = LONG) -> dict[str, dict[str, Any]]:
    """The last time that each test passed: date, commit, seconds."""
    found: dict[str, dict[str, Any]] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    return found


def note(test: str, run: Mapping[str, Any], path: Path = LONG) -> None:
    """Note that a test has passed; ``run``: as `read` returns it."""
    with file_lock(reliability.LOCK):
        runs = read(path)
        runs[test] = dict(run)
        lines = (f"{json.dumps(name)}: {json.dumps(runs[name])}" for name in sorted(runs))
        write_whole(path, ("{\n" + ",\n".join(lines) + "\n}\n").encode())


def stalest(
    tests: Iterable[str], runs: Mapping[str, Mapping[str, Any]], seconds: float
) -> list[str]:
    """The tests that passed longest ago, those that never did first, as many as the time allows.

    Args:
        tests: to choose from; the answer has one of them at least.
        runs: as `read` returns them.
        seconds: how long they may take, one after the other.
    """
    chosen: list[str] = []
    for test in sorted(tests, key=lambda test: (runs.get(test, {}).get("date", ""), test)):
        seconds -= runs.get(test, {}).get("seconds", _UNKNOWN_S)
        if chosen and seconds < 0:
            break
        chosen.append(test)
    return chosen
