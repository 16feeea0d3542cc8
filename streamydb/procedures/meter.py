"""The meter of one call: the work that is left, the depth, and the ways in which the call ends.

Everything that a procedure does is charged in *steps*, and a step does a bounded amount of work:
some hundred nanoseconds, some hundred bytes. What a step costs is part of the contract, as the
verdict `budget-exceeded` depends on it; a test pins the counts.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn

from streamydb import errors
from streamydb.limits import (
    PROCEDURE_DEPTH_MAX,
    PROCEDURE_INTEGER_BITS_MAX,
    PROCEDURE_STEPS_MAX,
    REASON_BYTES_MAX,
)
from streamydb.procedures.work import GAPS_PER_STEP, SEARCHED_FREE, steps_of_search

__all__ = ["ITEMS_PER_STEP", "TEXT_PER_STEP", "Meter", "Stop", "cut_reason", "is_of_language"]

ITEMS_PER_STEP = 16
"""Items of a list or dict that one step copies or compares."""

TEXT_PER_STEP = 256
"""Characters that one step copies or compares."""

_LANGUAGE: Final = (
    ArithmeticError, AssertionError, AttributeError, LookupError, NameError, RuntimeError,
    StopIteration, TypeError, ValueError,
)  # fmt: skip

_OURS: Final = "streamydb."

_INTEGER_MAX = 1 << PROCEDURE_INTEGER_BITS_MAX
_ATOMS = {int, float, bool, type(None)}


class Stop(BaseException):
    """The call ends here with a verdict; no code of a procedure can catch it."""

    def __init__(self, code: str, reason: str) -> None:
        """End with a reason code and the reason that the result gives."""
        super().__init__(code)
        self.code = code
        self.reason = reason


def is_of_language(error: BaseException) -> bool:
    """Return True if an operation of a procedure has raised this: then it is the procedure's own
    affair.

    Anything else is not: memory that is short, a disk, a fault of ours. No verdict follows from it.
    Code of ours outside of this package is no part of the language, whatever it raises.
    """
    if not isinstance(error, _LANGUAGE) and type(error) is not Exception:
        return False
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    raised_in = "" if trace is None else str(trace.tb_frame.f_globals.get("__name__", ""))
    return not raised_in.startswith(_OURS) or raised_in.startswith(__package__)


def cut_reason(text: str) -> str:
    """The reason as a result gives it: valid Unicode, not too long."""
    return text.encode(errors="replace")[:REASON_BYTES_MAX].decode(errors="ignore")


class Meter:
    """Counts down; raises `Stop` when nothing is left, from then on at every step."""

    __slots__ = ("broken", "deleted", "depth", "left", "stop")

    def __init__(self, steps: int = PROCEDURE_STEPS_MAX) -> None:
        """Allow so many steps.

        Attributes:
            deleted: entries that were deleted from dicts and sets, which leave gaps there.
        """
        self.left = steps
        self.deleted = 0
        self.depth = 0
        self.stop: Stop | None = None
        self.broken: BaseException | None = None

    def begin(self, steps: int) -> None:
        """Allow so many steps to another call."""
        self.left = steps
        self.deleted = self.depth = 0
        self.stop = None
        self.broken = None

    def tick(self) -> bool:
        """One step; true, so that it can stand in a condition."""
        self.left -= 1
        if self.left < 0:
            self.exceed("steps")
        return True

    def charge(self, steps: int) -> None:
        """So many steps."""
        self.left -= steps
        if self.left < 0:
            self.exceed("steps")

    def search(self, size: int, key: Any) -> None:
        """Charge for finding a key in a dict or set of so many entries."""
        size += self.deleted
        if size >= SEARCHED_FREE and type(key) is not str:
            self.charge(steps_of_search(size, key))

    def search_all(self, table: dict[Any, Any]) -> None:
        """Charge for finding each key of a dict in it, or in a copy."""
        if len(table) >= SEARCHED_FREE:
            for key in table:
                self.search(len(table), key)

    def pass_gaps(self) -> None:
        """Charge for the gaps in a dict or set, before somebody goes through it."""
        if self.deleted:
            self.charge(self.deleted // GAPS_PER_STEP)

    def end(self, code: str, reason: str) -> NoReturn:
        """End the call; the first reason stands."""
        if self.stop is None:
            self.stop = Stop(code, cut_reason(reason))
        raise self.stop

    def give_up(self, error: BaseException) -> NoReturn:
        """End the call without a verdict, because of an error that is not the procedure's."""
        self.broken = self.broken or error
        self.end(errors.INTERNAL, type(error).__name__)

    def exceed(self, bound: str) -> NoReturn:
        """End the call because a bound is exceeded."""
        self.end(errors.BUDGET_EXCEEDED, bound)

    def enter(self, steps: int = 1) -> None:
        """A function begins, whose own text takes so many steps."""
        self.left -= steps
        self.depth += 1
        if self.left < 0:
            self.exceed("steps")
        if self.depth > PROCEDURE_DEPTH_MAX:
            self.exceed("depth")

    def leave(self) -> None:
        """A function ends."""
        self.depth -= 1

    def integer(self, number: Any) -> Any:
        """The number, unless it is an integer of too many bits."""
        if type(number) is int and not -_INTEGER_MAX < number < _INTEGER_MAX:
            self.exceed("integer")
        return number

    def text(self, length: int) -> None:
        """Charge for so many characters."""
        self.charge(length // TEXT_PER_STEP + 1)

    def items(self, count: int) -> None:
        """Charge for so many items."""
        self.charge(count // ITEMS_PER_STEP + 1)

    def walk(self, value: Any, depth: int = 0) -> Any:
        """The value, after charging for all that is in it, however often it is in it.

        Raises:
            TypeError: something in it is no data: a function, a generator, an object of ours.

        """
        kind = type(value)
        if kind in _ATOMS:
            return value
        if kind is str:
            if len(value) > TEXT_PER_STEP:
                self.text(len(value))
            return value
        if depth > PROCEDURE_DEPTH_MAX:
            self.exceed("depth")
        if kind is list or kind is tuple:
            self.charge(len(value) // 4 + 1)
            for item in value:
                if type(item) not in _ATOMS:
                    self.walk(item, depth + 1)
        elif kind is dict:
            self.charge(len(value) // 2 + 1)
            if self.deleted:
                self.pass_gaps()
            for name, item in value.items():
                if type(name) is not str:
                    self.walk(name, depth + 1)
                    self.search(len(value), name)
                elif len(name) > TEXT_PER_STEP:
                    self.text(len(name))
                if type(item) not in _ATOMS:
                    self.walk(item, depth + 1)
        elif kind is range:
            self.charge(1)
        elif getattr(kind, "is_set", False):
            self.walk(value.items, depth)
        else:
            raise TypeError(f"a {kind.__name__} is no data")
        return value
