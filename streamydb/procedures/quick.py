"""Helpers for what calls do most: a key read or written, a text with values in it.

Each stands for several helpers of the machine, one after the other, and charges what they charge.
Where less is left than that, or where something is unusual, it hands on to them, untouched; so a
call ends at the same step, whichever form its code has. A test holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any, Final

from streamydb import errors
from streamydb.limits import VALUE_BYTES_MAX
from streamydb.procedures.data import canonical_of, decoded
from streamydb.procedures.machine import Machine
from streamydb.procedures.meter import TEXT_PER_STEP
from streamydb.procedures.view import ProcedureView

__all__ = [
    "QUICK", "bound_to", "filled1", "filled2", "filled3", "get1", "get2", "put2",
]  # fmt: skip

_NOT_WRITTEN: Final = object()
_WORDS: Final = 1 << 63
"""The text of an integer below it takes one step."""


def get1(machine: Machine, owner: Any, key: Any) -> Any:
    """owner.get(key)."""
    if type(owner) is not ProcedureView or type(key) is not str:
        return machine.method1(owner, "get", key)
    machine.left -= 1
    if machine.left < 0:
        machine.exceed("steps")
    data: Any = owner.writes.get(key, _NOT_WRITTEN) if owner.writes else _NOT_WRITTEN
    if data is _NOT_WRITTEN:
        data = owner.stored(key, False)
    return decoded(machine, data)


def get2(machine: Machine, owner: Any, key: Any, default: Any) -> Any:
    """owner.get(key, default)."""
    if type(owner) is not ProcedureView or type(key) is not str:
        return machine.method2(owner, "get", key, default)
    found = get1(machine, owner, key)
    return default if found is None else found


def put2(machine: Machine, owner: Any, key: Any, value: Any) -> Any:
    """owner.put(key, value)."""
    if type(owner) is not ProcedureView or type(key) is not str or value is None:
        return machine.method2(owner, "put", key, value)
    machine.left -= 1
    if machine.left < 0:
        machine.exceed("steps")
    data = canonical_of(machine, value)
    if key not in owner.writes:
        owner.stored(key, True)
    if len(data) > VALUE_BYTES_MAX:
        machine.end(errors.VALUE_TOO_LARGE, key)
    owner.writes[key] = data
    return None


def filled1(machine: Machine, before: str, value: Any, after: str) -> str:
    """An f-string with one value, without format and conversion."""
    kind = type(value)
    if kind is str or (kind is int and -_WORDS < value < _WORDS):
        text = f"{before}{value}{after}"
        left = machine.left - len(text) // TEXT_PER_STEP - (1 if kind is str else 2)
        if left >= 0:
            machine.left = left
            return text
    return machine.joined(before, machine.formatted(value, -1, ""), after)


def filled2(machine: Machine, before: str, one: Any, between: str, two: Any, after: str) -> str:
    """As `filled1`, with two values."""
    kind, other = type(one), type(two)
    if (kind is str or (kind is int and -_WORDS < one < _WORDS)) and (
        other is str or (other is int and -_WORDS < two < _WORDS)
    ):
        text = f"{before}{one}{between}{two}{after}"
        steps = 1 + (kind is int) + (other is int)
        left = machine.left - len(text) // TEXT_PER_STEP - steps
        if left >= 0:
            machine.left = left
            return text
    first, second = machine.formatted(one, -1, ""), machine.formatted(two, -1, "")
    return machine.joined(before, first, between, second, after)


def filled3(machine: Machine, before: str, one: Any, *rest: Any) -> str:
    """As `filled1`, with three values: text and value by turns."""
    second, two, third, three, after = rest
    kinds = type(one), type(two), type(three)
    ints = kinds.count(int)
    if ints + kinds.count(str) == 3 and (
        not ints or all(type(v) is str or -_WORDS < v < _WORDS for v in (one, two, three))
    ):
        text = f"{before}{one}{second}{two}{third}{three}{after}"
        left = machine.left - len(text) // TEXT_PER_STEP - ints - 1
        if left >= 0:
            machine.left = left
            return text
    shown = [machine.formatted(value, -1, "") for value in (one, two, three)]
    return machine.joined(before, shown[0], second, shown[1], third, shown[2], after)


QUICK: Final[dict[str, Callable[..., Any]]] = {
    "get1": get1, "get2": get2, "put2": put2, "filled1": filled1, "filled2": filled2,
    "filled3": filled3,
}  # fmt: skip
"""The helpers by the names under which code calls them, as `machine.HELPERS`."""


def bound_to(machine: Machine, name: str) -> Callable[..., Any]:
    """One of them, for a call's machine."""
    return MethodType(QUICK[name], machine)
