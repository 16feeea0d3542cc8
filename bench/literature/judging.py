"""What a judge is told, and what it says (pure).

A judge is told everything once: what was asked, each answer, each change; then it names the
invariants of its benchmark and what is wrong with them. It computes on its own: nothing of the
engine, and not the serial oracle.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

import msgspec

__all__ = [
    "Answered", "Asked", "Base", "Changed", "Invariant", "Judge", "Judges", "LastValues",
    "invariant", "number_of",
]  # fmt: skip

PROBLEMS_SHOWN: Final = 5
"""So many problems of an invariant are told; the rest is counted."""

ID_PREFIX: Final = "t"
"""The transactions that are judged have this and a number as ids."""


class Asked(msgspec.Struct, gc=False):
    """A transaction as it lies in the log."""

    id: str = ""
    updates: list[dict[str, Any]] = []
    reads: list[str] = []
    call: dict[str, Any] = {}


class Answered(msgspec.Struct, gc=False):
    """A result: of a transaction that committed or did not."""

    id: str | None
    seq: int
    status: str
    code: str | None = None
    reads: dict[str, Any] = {}
    returned: Any = None
    reason: str | None = None

    @property
    def committed(self) -> bool:
        """Whether it took effect."""
        return self.status == "committed"


class Changed(msgspec.Struct, gc=False):
    """A value that a transaction wrote; None: it deleted the key."""

    key: str
    seq: int
    value: Any


class Invariant(msgspec.Struct):
    """Something that must hold, and what contradicts it.

    Attributes:
        name: what must hold, in words.
        checked: in how many places it was looked at.
        broken: in how many places it does not hold.
        problems: some of those.
    """

    name: str
    checked: int
    broken: int = 0
    problems: list[str] = []

    @property
    def ok(self) -> bool:
        """Whether it holds."""
        return not self.broken


def invariant(name: str, checked: int, problems: Iterable[str]) -> Invariant:
    """An invariant with its problems, of which the first are kept."""
    broken, kept = 0, []
    for problem in problems:
        broken += 1
        if broken <= PROBLEMS_SHOWN:
            kept.append(problem)
    return Invariant(name, checked, broken, kept)


class Judge(Protocol):
    """Knows what a benchmark must keep."""

    needs_log: bool
    """Whether it wants to be told what was asked, before anything else."""

    def asked(self, transaction: Asked) -> None:
        """Take note of a transaction in the log."""

    def answered(self, result: Answered) -> None:
        """Take note of a result; each seq comes once, in any order."""

    def changed(self, change: Changed) -> None:
        """Take note of a change; those of one key come in order, each once."""

    def invariants(self) -> list[Invariant]:
        """What must hold, and what of it does not."""


class Base:
    """A judge that takes note of nothing; the others extend it."""

    needs_log = False

    def asked(self, transaction: Asked) -> None:
        """Take note of a transaction in the log."""

    def answered(self, result: Answered) -> None:
        """Take note of a result."""

    def changed(self, change: Changed) -> None:
        """Take note of a change."""

    def invariants(self) -> list[Invariant]:
        """What must hold, and what of it does not."""
        return []


class Judges(Base):
    """Several judges as one."""

    def __init__(self, judges: Sequence[Judge]) -> None:
        """Tell each of them everything."""
        self._judges = judges
        self.needs_log = any(judge.needs_log for judge in judges)

    def asked(self, transaction: Asked) -> None:
        """Take note of a transaction in the log."""
        for judge in self._judges:
            judge.asked(transaction)

    def answered(self, result: Answered) -> None:
        """Take note of a result."""
        for judge in self._judges:
            judge.answered(result)

    def changed(self, change: Changed) -> None:
        """Take note of a change."""
        for judge in self._judges:
            judge.changed(change)

    def invariants(self) -> list[Invariant]:
        """What must hold, and what of it does not."""
        return [found for judge in self._judges for found in judge.invariants()]


class LastValues(dict[str, Any]):
    """The value of each key after the last change; deleted ones are left out."""

    def take(self, change: Changed) -> None:
        """Take over a change."""
        if change.value is None:
            self.pop(change.key, None)
        else:
            self[change.key] = change.value


def number_of(name: str | None) -> int:
    """The number in a transaction's id; -1 if it is no transaction of a benchmark."""
    if name is None or not name.startswith(ID_PREFIX) or not name[1:].isdigit():
        return -1
    return int(name[1:])
