"""Progress of a command that goes through phases: a spinner with the elapsed time, one line each.

All of it goes to standard error. Where that is no terminal, each phase is one plain line at its
end.
"""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from streamydb.cli.common import is_utf8, stderr, tick

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console
    from rich.status import Status
    from rich.text import Text

_BAR_WIDTH = 30


class Phase:
    """One phase under way."""

    def __init__(self, title: str, status: Status | None) -> None:
        self.title = title
        self.outcome = ""
        self._status = status
        self._started_s = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started_s

    def note(self, text: str = "") -> None:
        if self._status is not None:
            self._status.update(_shown(self.title, text, self.seconds))


class Phases:
    """Shows phases one after the other."""

    def __init__(self) -> None:
        self.console: Console = stderr()

    @contextmanager
    def phase(self, title: str) -> Iterator[Phase]:
        """Run one phase; its line is ticked at the end, or crossed if an exception leaves it."""
        if self.console.is_terminal:
            with self.console.status(_shown(title, "", 0.0), spinner="dots") as status:
                phase = Phase(title, status)
                yield from self._watched(phase)
        else:
            yield from self._watched(Phase(title, None))

    def _watched(self, phase: Phase) -> Iterator[Phase]:
        try:
            yield phase
        except BaseException:
            self._end(phase, good=False)
            raise
        self._end(phase, good=True)

    def _end(self, phase: Phase, *, good: bool) -> None:
        from rich.markup import escape

        text = _line(phase.title, phase.outcome, phase.seconds)
        self.console.print(f"{tick(self.console, good=good)} {escape(text)}", soft_wrap=True)


def bar(count: int, total: int, width: int = _BAR_WIDTH) -> str:
    filled = width if total <= 0 else min(width, count * width // total)
    full, empty = ("█", "░") if is_utf8(sys.stderr) else ("#", ".")
    return full * filled + empty * (width - filled)


def _shown(title: str, text: str, seconds: float) -> Text:
    """The line as it is: what stands in square brackets is no markup."""
    from rich.text import Text

    return Text(_line(title, text, seconds))


def _line(title: str, text: str, seconds: float) -> str:
    return f"{title}{': ' if text else ''}{text} ({seconds:.1f} s)"
