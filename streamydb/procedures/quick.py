"""Helpers for what calls do most: a key read or written, a text with values in it.

Each stands for several helpers of the machine, one after the other, and charges what they charge.
Where less is left than that, or where something is unusual, it hands on to them, untouched; so a
call ends at the same step, whichever form its code has. A test holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from streamydb import errors
from streamydb.limits import INTEGER_MAX, INTEGER_MIN, VALUE_BYTES_MAX
from streamydb.procedures.data import canonical_of, decoded, value_of
from streamydb.procedures.machine import Machine
from streamydb.procedures.meter import TEXT_PER_STEP, WORD
from streamydb.procedures.view import UNDECLARED, ProcedureView

_WORDS: Final = 1 << 63
"""The text of an integer below it takes one step."""


def get1(machine: Machine, owner: Any, key: Any) -> Any:
    """owner.get(key)."""
    if type(owner) is not ProcedureView or type(key) is not str:
        return machine.method1(owner, "get", key)
    data: Any = owner.values.get(key, UNDECLARED)
    if data is UNDECLARED or data is None:
        machine.tick()
        return decoded(machine, owner.stored(key, False)) if data is UNDECLARED else None
    left = machine.left - len(data) // 32 - 2
    if left < 0:
        machine.tick()
        return decoded(machine, data)
    machine.left = left
    return value_of(data)


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
    if key not in owner.writable and key not in owner.writes:
        owner.stored(key, True)
    if len(data) > VALUE_BYTES_MAX:
        machine.end(errors.VALUE_TOO_LARGE, key)
    owner.writes[key] = owner.values[key] = data
    return None


def add2(machine: Machine, owner: Any, key: Any, by: Any) -> Any:
    """owner.add(key, by)."""
    if type(owner) is ProcedureView and type(by) is int and type(key) is str:
        data = owner.values.get(key)
        if data is not None and key in owner.writable and data[-1:].isdigit():
            before, left = value_of(data), machine.left - 4
            if type(before) is int and type(data) is bytes and left >= 0:
                total = before + by
                if INTEGER_MIN <= total <= INTEGER_MAX and INTEGER_MIN <= by <= INTEGER_MAX:
                    machine.left = left
                    owner.writes[key] = owner.values[key] = b"%d" % total
                    return total
    return machine.method2(owner, "add", key, by)


def append1(machine: Machine, owner: Any, item: Any) -> Any:
    """owner.append(item)."""
    if type(owner) is not list or machine.left < 1:
        return machine.method1(owner, "append", item)
    machine.left -= 1
    owner.append(item)
    return None


def grown(machine: Machine, left: Any, right: Any) -> Any:
    """The value of ``left`` after ``left += right``."""
    if type(left) is int and type(right) is int:
        total = left + right
        if -WORD < total < WORD:
            return total
    return machine.augment("add", left, right)


def texted(machine: Machine, text: str, steps: int, most: int) -> str | None:
    """Return an f-string of integers, for so many steps; None: its parts have to be looked at.

    ``most``: with so many characters, no integer in it has more than eighteen.
    """
    left = machine.left - steps
    if left < 0 or len(text) > most:
        return None
    machine.left = left
    return text


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


def filled(machine: Machine, template: str, between: tuple[str, ...], *values: Any) -> str:
    """As `filled1`, with any number of values, in a template of `%`.

    ``between``: the texts before, between and after them.
    """
    ints = 0
    for value in values:
        kind = type(value)
        if kind is int and -_WORDS < value < _WORDS:
            ints += 1
        elif kind is not str:
            break
    else:
        text = template % values
        left = machine.left - len(text) // TEXT_PER_STEP - ints - 1
        if left >= 0:
            machine.left = left
            return text
    parts = [between[0]]
    for value, after in zip(values, between[1:], strict=True):
        parts += [machine.formatted(value, -1, ""), after]
    return machine.joined(*parts)


QUICK: Final[dict[str, Callable[..., Any]]] = {
    "get1": get1, "get2": get2, "put2": put2, "add2": add2, "append1": append1, "grown": grown,
    "filled1": filled1, "filled2": filled2, "filled": filled, "texted": texted,
}  # fmt: skip
"""The helpers by the names under which code calls them, as `machine.HELPERS`."""
