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
        Raises TypeError: something in it is no data: a function, a generator, an object of ours.
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


# Three things make a short operation long: a key that Python finds late in a dict, a text that it
# looks for by comparing each place with each, and integers of thousands of bits.
GAPS_PER_STEP: Final = 256
"""Gaps of deleted entries that one step passes over."""

SEARCHED_FREE: Final = 16
"""In a dict or set with fewer entries, a key is found in no time."""

WORD: Final = 1 << 256
"""Up to here, the length of an integer does not matter."""

_NUMBERS_PER_STEP: Final = 512
_EQUAL_HASHES_PER_STEP: Final = 64
_TUPLE_ITEMS_PER_STEP: Final = 128
_TUPLE: Final = 4
_SPREAD: Final = 1 << 64
_CHARACTERS_PER_ITEM: Final = 64
_COMPARED_PER_STEP: Final = 2_048
_SHORT_TEXT: Final = 2_500
_MEDIUM_TEXT: Final = 30_000
_SHORT_PART: Final = 4
_MEDIUM_PART: Final = 100


def steps_of_search(size: int, key: Any) -> int:
    """The steps of finding a key among ``size`` entries, at worst.

    Python hashes numbers and tuples in a way that everybody can compute, so whoever chooses them
    can make it look at every entry. Few numbers below 2**64 have the same hash, so most entries
    that it looks at differ in the hash already. The hash of a text is a secret of the process: a
    text is found at once, and so is a tuple of texts and at most one such number.
    """
    kind = type(key)
    if kind is str:
        return 0
    if kind is tuple:
        if _is_spread(key):
            return 0
        return size * (_TUPLE + _size(key)) // _TUPLE_ITEMS_PER_STEP
    if kind is int and not -_SPREAD < key < _SPREAD:
        return size // _EQUAL_HASHES_PER_STEP
    return size // _NUMBERS_PER_STEP


def _is_spread(key: tuple[Any, ...]) -> bool:
    """Return True if nobody can choose such tuples with hashes of his choice."""
    others = [item for item in key if type(item) is not str or not item]  # hash("") is known
    if len(others) > 1 or len(others) == len(key):
        return False
    return all(type(item) in _NUMBERS and -_SPREAD < item < _SPREAD for item in others)


_NUMBERS: Final = (int, float, bool)


def _size(key: tuple[Any, ...]) -> int:
    """The items that are compared in two tuples that are equal up to the end."""
    total = 0
    for item in key:
        if type(item) is tuple:
            total += _TUPLE + _size(item)
        else:
            total += 1 + (len(item) // _CHARACTERS_PER_ITEM if type(item) is str else 0)
    return total


def steps_of_find(text: int, part: int, *, backwards: bool = False) -> int:
    """The steps beyond its length of looking for a part of such a length in a text.

    Python compares each place with the whole part in short texts, and for short parts; and always
    when it looks backwards. Else its time is like the lengths.
    """
    if part <= _SHORT_PART or part > text:
        return 0
    each = text < _SHORT_TEXT or (part < _MEDIUM_PART and text < _MEDIUM_TEXT)
    if not (each or backwards or part < _SHORT_PART + 2):
        return 0
    return (text - part + 1) * part // _COMPARED_PER_STEP


def steps_of_strip(text: int, characters: int) -> int:
    """The steps beyond its length of removing such a number of characters at the ends."""
    return text // 32 if characters <= _CHARACTERS_PER_ITEM else text // 8


_NESTED: Final = (list, tuple, dict)


def steps_of_levels(value: Any, depth: int = 0) -> int:
    """The steps beyond its size of finding which of two nested values is less.

    Each level looks for the first items that differ, and then the items' level does it again.
    """
    kind = type(value)
    if kind not in _NESTED:
        return 0
    steps = depth * (len(value) // 4 + 1)
    for item in value.values() if kind is dict else value:
        if type(item) in _NESTED:
            steps += steps_of_levels(item, depth + 1)
    return steps
