"""The built-in functions that procedures have: those of Python, with a charge and exact types.

`map`, `filter`, `zip`, `enumerate`, `reversed` give lists, and sets keep the order of insertion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from streamydb.procedures.declare import Abort
from streamydb.procedures.machine import Machine
from streamydb.procedures.methods import ordered, pairs
from streamydb.procedures.sets import OrderedSet
from streamydb.procedures.texts import require_known

__all__ = ["EXCEPTIONS", "FUNCTIONS", "NAMES", "bound"]

_DIGITS_MAX: Final = 1_000
# More than a double can use (324); the bound keeps `10**digits` small for integers.
_ROUND_MAX: Final = 400
_ROUND_STEPS: Final = 32
"""Rounding to digits computes with integers of a thousand bits, at worst."""
_NO = object()


def _abs(_: Machine, number: Any) -> Any:
    return abs(number)


def _all(machine: Machine, items: Any) -> bool:
    return all(_each(machine, items))


def _any(machine: Machine, items: Any) -> bool:
    return any(_each(machine, items))


def _each(machine: Machine, items: Any) -> Iterator[Any]:
    """The items one by one, each a step."""
    machine.pass_gaps()
    for item in items:
        machine.tick()
        yield item


def _bool(_: Machine, value: Any = False) -> bool:  # noqa: FBT002 - Python's signature
    return bool(value)


def _chr(_: Machine, number: int) -> str:
    return chr(number)


def _ord(_: Machine, text: str) -> int:
    return ord(text)


def _dict(machine: Machine, items: Any = (), **named: Any) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for name, value in pairs(machine, items):
        machine.found(found, name)
        found[name] = value
    machine.charge((len(found) + len(named)) // 4)
    return {**found, **named}


def _divmod(machine: Machine, left: Any, right: Any) -> Any:
    return divmod(machine.dividend(machine.plain(left)), machine.plain(right))


def _enumerate(machine: Machine, items: Any, start: int = 0) -> list[Any]:
    found = machine.listed(items)
    machine.charge(len(found) // 4)
    if type(start) is int:
        machine.charge(len(found) * (start.bit_length() // 512))
    return list(enumerate(found, start))


def _filter(machine: Machine, test: Any, items: Any) -> list[Any]:
    found = machine.listed(items)
    return [item for item in found if machine.tick() and (test(item) if test else item)]


def _map(machine: Machine, function: Any, *items: Any) -> list[Any]:
    found = zip(*(machine.listed(each) for each in items), strict=False)
    return [function(*each) for each in found if machine.tick()]


def _zip(machine: Machine, *items: Any, strict: bool = False) -> list[Any]:
    machine.charge(len(items) // 2)
    found = zip(*(_each(machine, each) for each in items), strict=strict)
    return list(found) if items else []


def _float(machine: Machine, value: Any = 0.0) -> float:
    number = float(_short(machine, value))
    if number - number != 0:
        raise ValueError("a number is finite")
    return number


def _int(machine: Machine, value: Any = 0, base: Any = _NO) -> Any:
    value = _short(machine, value)
    return machine.integer(int(value) if base is _NO else int(value, base))


def _short(machine: Machine, value: Any) -> Any:
    """A number, or a text that is not too long to be one."""
    if type(value) is str and len(value) > _DIGITS_MAX:
        raise ValueError(f"a number has at most {_DIGITS_MAX} characters")
    if type(value) is str:
        machine.charge(len(value) // 8)
        require_known(value)
    return value if type(value) is str else machine.plain(value)


def _isinstance(machine: Machine, value: Any, kinds: Any) -> bool:
    wanted = kinds if type(kinds) is tuple else (kinds,)
    machine.charge(len(wanted) // 4)
    types = [getattr(kind, "stands_for", None) for kind in wanted]
    if None in types:
        raise TypeError("isinstance takes int, float, bool, str, list, tuple, dict or set")
    return isinstance(value, tuple(types))  # type: ignore[arg-type]


def _iter(machine: Machine, items: Any) -> Iterator[Any]:
    return iter(machine.listed(items))


def _len(_: Machine, items: Any) -> int:
    return len(items)


def _list(machine: Machine, items: Any = ()) -> list[Any]:
    return machine.listed(items)


def _tuple(machine: Machine, items: Any = ()) -> tuple[Any, ...]:
    return tuple(machine.listed(items))


def _set(machine: Machine, items: Any = ()) -> OrderedSet:
    return OrderedSet(machine, machine.listed(items))


def _max(machine: Machine, *items: Any, **options: Any) -> Any:
    return _best(machine, max, items, options)


def _min(machine: Machine, *items: Any, **options: Any) -> Any:
    return _best(machine, min, items, options)


def _best(
    machine: Machine, choose: Callable[..., Any], items: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    found = machine.listed(items[0]) if len(items) == 1 else list(items)
    key = options.pop("key", None)
    keys = found if key is None else [key(item) for item in found]
    machine.charge(len(found) // 4)
    for each in keys:
        machine.ranked(each)
    if not found:
        return choose(found, **options)
    if options.keys() - {"default"}:
        raise TypeError("min and max take key and default")
    return found[choose(range(len(found)), key=keys.__getitem__)]


def _next(_: Machine, items: Any, default: Any = _NO) -> Any:
    return next(items) if default is _NO else next(items, default)


def _range(_: Machine, *bounds: Any) -> range:
    return range(*bounds)


def _reversed(machine: Machine, items: Any) -> list[Any]:
    return machine.listed(items)[::-1]


def _round(machine: Machine, number: Any, digits: Any = None) -> Any:
    if digits is None:
        return round(machine.plain(number))
    if type(digits) is not int or abs(digits) > _ROUND_MAX:
        raise ValueError(f"round takes up to {_ROUND_MAX} digits")
    machine.charge(_ROUND_STEPS)
    return machine.integer(round(machine.plain(number), digits))


def _sorted(machine: Machine, items: Any, *, key: Any = None, reverse: bool = False) -> list[Any]:
    return ordered(machine, machine.listed(items), key, reverse=reverse)


def _str(machine: Machine, value: Any = "") -> str:
    return machine.shown(value)


def _repr(machine: Machine, value: Any) -> str:
    return machine.shown(value, quoted=True)


def _sum(machine: Machine, items: Iterable[Any], start: Any = 0) -> Any:
    total = start
    for item in _each(machine, items):
        total = machine.add(total, item)
    return total


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "abs": _abs, "all": _all, "any": _any, "bool": _bool, "chr": _chr, "dict": _dict,
    "divmod": _divmod, "enumerate": _enumerate, "filter": _filter, "float": _float, "int": _int,
    "isinstance": _isinstance, "iter": _iter, "len": _len, "list": _list, "map": _map, "max": _max,
    "min": _min, "next": _next, "ord": _ord, "range": _range, "repr": _repr,
    "reversed": _reversed, "round": _round, "set": _set, "sorted": _sorted, "str": _str,
    "sum": _sum, "tuple": _tuple, "zip": _zip,
}  # fmt: skip
"""Name -> function, which gets the machine first."""

_TYPES: Final[dict[str, type]] = {
    "bool": bool, "dict": dict, "float": float, "int": int, "list": list, "set": OrderedSet,
    "str": str, "tuple": tuple,
}  # fmt: skip

EXCEPTIONS: Final[dict[str, type[BaseException]]] = {
    kind.__name__: kind
    for kind in (
        Abort, ArithmeticError, AssertionError, AttributeError, Exception, IndexError, KeyError,
        LookupError, NotImplementedError, OverflowError, RuntimeError, StopIteration, TypeError,
        ValueError, ZeroDivisionError,
    )
}  # fmt: skip
"""Exceptions that procedures may raise and catch."""

NAMES: Final = frozenset([*FUNCTIONS, *EXCEPTIONS])
"""Names that a procedure has without an import (`Abort` too)."""


def bound(machine: Machine, name: str) -> Any:
    """Return the object that a built-in name stands for in a call."""
    if name in EXCEPTIONS:
        return EXCEPTIONS[name]
    function = FUNCTIONS[name]

    def call(*args: Any, **named: Any) -> Any:
        machine.tick()
        return function(machine, *args, **named)

    if name in _TYPES:
        call.stands_for = _TYPES[name]  # type: ignore[attr-defined]
    return call
