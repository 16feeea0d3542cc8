"""Sliding windows: state of one procedure, over the last items or the last time (S-Store).

What is inserted is *staged* until a whole slide has come; then the window slides at once: staged
items become visible, old ones go. By number: a slide is so many items. By time: slides end at
multiples of the slide in commit time, and the window shows what was inserted in the size before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamydb import errors
from streamydb.errors import ValueRejected
from streamydb.limits import VALUE_BYTES_MAX, WINDOW_ITEMS_MAX
from streamydb.procedures.data import plain_bytes, unfit
from streamydb.procedures.methods import METHODS
from streamydb.records import canonical, decode_value

if TYPE_CHECKING:
    from streamydb.procedures.graph import Window
    from streamydb.procedures.machine import Machine


class SlidingWindow:
    """A window within one call."""

    __slots__ = ("active", "before", "declared", "end", "now", "slid", "staged")

    def __init__(self, declared: Window, before: bytes | None, now: int) -> None:
        """Continue from the value under the window's key; ``now``: commit time in ms."""
        self.declared = declared
        self.before = before
        self.now = now
        self.slid = False
        told: dict[str, Any] = {} if before is None else decode_value(before)
        known = ("end" in told) == declared.timed
        self.active: list[Any] = told["active"] if before is not None and known else []
        self.staged: list[Any] = told["staged"] if before is not None and known else []
        self.end: int = told.get("end", 0) if known else 0
        if declared.timed:
            self._advance()

    def _advance(self) -> None:
        """Slide to the last boundary that is not after now."""
        end = self.now - self.now % self.declared.slide
        if end <= self.end:
            return
        came = [pair for pair in self.staged if pair[0] < end]
        start = end - self.declared.size
        self.slid = bool(came) or any(pair[0] < start for pair in self.active)
        self.active = [pair for pair in [*self.active, *came] if pair[0] >= start]
        self.staged = self.staged[len(came) :]
        self.end = end

    def insert(self, item: Any) -> bool:
        """Stage an item; whether the window slid by that."""
        if self.declared.timed:
            self.staged.append([self.now, item])
            return False
        self.staged.append(item)
        if len(self.staged) < self.declared.slide:
            return False
        self.active = [*self.active, *self.staged][-self.declared.size :]
        self.staged = []
        self.slid = True
        return True

    def items(self) -> list[Any]:
        """Return the visible items, the oldest first."""
        return [pair[1] for pair in self.active] if self.declared.timed else list(self.active)

    def value(self) -> bytes:
        """The canonical value to be stored."""
        told: dict[str, Any] = {"active": self.active, "staged": self.staged}
        if self.declared.timed:
            told["end"] = self.end
        return canonical(told)


def _insert(machine: Machine, window: SlidingWindow, item: Any) -> bool:
    if len(window.active) + len(window.staged) >= WINDOW_ITEMS_MAX:
        machine.exceed("window")
    machine.charge(len(window.active) // 16 + 1)
    return window.insert(decode_value(plain_bytes(machine, item)))


def _items(machine: Machine, window: SlidingWindow) -> list[Any]:
    return decode_value(plain_bytes(machine, window.items()))  # type: ignore[no-any-return]


def _slid(machine: Machine, window: SlidingWindow) -> bool:
    machine.tick()
    return window.slid


def stored(machine: Machine, window: SlidingWindow, key: str) -> bytes:
    """The value of a window at the end of a call, charged.
    Raises TypeError: it has an item that is nested too deeply to be in it.
    """
    try:
        data = window.value()
    except ValueRejected as fault:
        raise unfit(fault) from None
    machine.charge(len(data) // 32 + 1)
    if len(data) > VALUE_BYTES_MAX:
        machine.end(errors.VALUE_TOO_LARGE, key)
    return data


METHODS[SlidingWindow] = {"insert": _insert, "items": _items, "slid": _slid}
