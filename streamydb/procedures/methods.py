"""The methods that values have in a procedure, by type: an allow-list, each with its charge."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from streamydb.procedures.chance import Random
from streamydb.procedures.meter import TEXT_PER_STEP
from streamydb.procedures.searches import SEARCHES, SHORT
from streamydb.procedures.sets import OrderedSet
from streamydb.procedures.texts import CHARACTERS_PER_STEP, pinned
from streamydb.procedures.work import steps_of_find, steps_of_strip

if TYPE_CHECKING:
    from streamydb.procedures.machine import Machine

__all__ = ["ATTRIBUTES", "METHODS", "Method"]

Method: TypeAlias = Callable[..., Any]


def _function(name: str) -> Method:
    """Python's method of texts, or one that does the same in less time."""
    found: Method = SEARCHES.get(name) or getattr(str, name)
    return found


def _affix(name: str) -> Method:
    """A method of texts that looks at an end, for one text or each of a tuple of them."""
    function = _function(name)

    def call(machine: Machine, text: str, *args: Any) -> Any:
        machine.text(len(text))
        if args and type(args[0]) is tuple:
            machine.walk(args[0])
        return function(text, *args)

    return call


def _found(name: str) -> Method:
    """A method of texts that looks for a part."""
    function = _function(name)
    backwards = name.startswith("r")

    def call(machine: Machine, text: str, *args: Any) -> Any:
        machine.text(len(text))
        _weigh_find(machine, text, args, backwards=backwards)
        return function(text, *args)

    return call


def _weigh_find(
    machine: Machine, text: str, args: tuple[Any, ...], *, backwards: bool = False
) -> None:
    """Charge for looking for a part; long ones are looked for forwards (`searches`)."""
    if args and type(args[0]) is str:
        short = len(args[0]) <= SHORT
        machine.charge(steps_of_find(len(text), len(args[0]), backwards=backwards and short))


def _cased(name: str) -> Method:
    """A method of texts that looks at the tables of Unicode."""
    function = _function(name)
    strips = name.endswith("strip")

    def call(machine: Machine, text: str, *args: Any) -> Any:
        machine.text(len(text))
        if strips and args and type(args[0]) is str:
            machine.charge(steps_of_strip(len(text), len(args[0])))
        _weigh_tables(machine, text, args)
        return pinned(function, text, *args)

    return call


def _weigh_tables(machine: Machine, text: str, args: tuple[Any, ...]) -> None:
    """Charge for looking each character up, where not all are of ASCII."""
    length = len(text) + sum(len(arg) for arg in args if type(arg) is str)
    if not (text.isascii() and all(arg.isascii() for arg in args if type(arg) is str)):
        machine.charge(length // CHARACTERS_PER_STEP)
    elif args:
        machine.charge(length // TEXT_PER_STEP)


def _replace(machine: Machine, text: str, old: str, new: str, count: int = -1) -> str:
    machine.text(len(text))
    _weigh_find(machine, text, (old,))
    found = text.count(old)
    times = found if count < 0 else min(found, count)
    machine.text(len(text) + times * len(new))
    return text.replace(old, new, count)


def _join(machine: Machine, text: str, parts: Any) -> str:
    texts = machine.listed(parts)
    machine.text(sum(map(len, texts)) + len(text) * len(texts))
    return text.join(texts)


def _wide(name: str) -> Method:
    function = getattr(str, name)

    def call(machine: Machine, text: str, width: int, *fill: str) -> Any:
        if type(width) not in (int, bool):  # infinite steps leave no number of them
            raise TypeError("a width is an integer")
        machine.text(max(len(text), width))
        return function(text, width, *fill)

    return call


def _split(name: str) -> Method:
    function = _function(name)
    backwards = name.startswith("r")

    def call(machine: Machine, text: str, *args: Any) -> Any:
        machine.text(len(text))
        _weigh_find(machine, text, args, backwards=backwards)
        _weigh_tables(machine, text, args)
        parts = pinned(function, text, *args)
        machine.items(len(parts))
        machine.charge(len(parts) // 4)
        return parts

    return call


_TEXT: Final[dict[str, Method]] = {
    **{
        name: _affix(name)
        for name in ("endswith", "isascii", "removeprefix", "removesuffix", "startswith")
    },
    **{
        name: _found(name)
        for name in ("count", "find", "index", "partition", "rfind", "rindex", "rpartition")
    },
    **{
        name: _cased(name)
        for name in (
            "capitalize",
            "casefold",
            "isalnum",
            "isalpha",
            "isdecimal",
            "isdigit",
            "islower",
            "isspace",
            "isupper",
            "lower",
            "lstrip",
            "rstrip",
            "strip",
            "title",
            "upper",
        )
    },
    **{name: _split(name) for name in ("rsplit", "split", "splitlines")},
    **{name: _wide(name) for name in ("center", "ljust", "rjust", "zfill")},
    "replace": _replace,
    "join": _join,
}


def _shallow(kind: type, name: str) -> Method:
    """A method that takes as long as the container is long."""
    function = getattr(kind, name)

    def call(machine: Machine, items: Any, *args: Any) -> Any:
        machine.items(len(items))
        return function(items, *args)

    return call


def _deep(kind: type, name: str) -> Method:
    """A method that compares with all items."""
    function = getattr(kind, name)

    def call(machine: Machine, items: Any, *args: Any) -> Any:
        machine.walk(items)
        for arg in args:
            machine.walk(arg)
        return function(items, *args)

    return call


def _once(kind: type, name: str) -> Method:
    """A method that takes one step."""
    function = getattr(kind, name)

    def call(_: Machine, items: Any, *args: Any) -> Any:
        return function(items, *args)

    return call


def _keyed(name: str) -> Method:
    """A method of dicts that takes a key."""
    function = getattr(dict, name)

    deletes = name == "pop"

    def call(machine: Machine, items: Any, key: Any, *args: Any) -> Any:
        machine.found(items, key)
        machine.deleted += deletes
        return function(items, key, *args)

    return call


def _view(name: str) -> Method:
    """A view of a dict, as a list."""
    function = getattr(dict, name)

    def call(machine: Machine, items: Any) -> Any:
        machine.charge(len(items) // 4 + 1)
        machine.pass_gaps()
        return list(function(items))

    return call


def _pop(machine: Machine, items: list[Any], *place: int) -> Any:
    if place:
        machine.items(len(items))
    return items.pop(*place)


def _extend(machine: Machine, items: list[Any], more: Any) -> None:
    items.extend(machine.listed(more))


def _sort(machine: Machine, items: list[Any], *, key: Any = None, reverse: bool = False) -> None:
    items[:] = _ordered(machine, list(items), key, reverse=reverse)


def _ordered(machine: Machine, items: list[Any], key: Any, *, reverse: bool) -> list[Any]:
    """The items in order, those with equal keys as they came."""
    keys = items if key is None else [key(item) for item in items]
    for each in keys:
        machine.ranked(each)
    machine.charge(len(items) * (len(items).bit_length() + 1) // 4 + 1)
    places = sorted(range(len(items)), key=keys.__getitem__, reverse=bool(reverse))
    return [items[place] for place in places]


def _update(machine: Machine, items: dict[Any, Any], more: Any = (), **named: Any) -> None:
    for name, value in _pairs(machine, more):
        machine.found(items, name)
        items[name] = value
    machine.charge(len(named) // 4)
    items.update(named)


def _pairs(machine: Machine, items: Any) -> list[Any]:
    """The pairs that make a dict."""
    if type(items) is dict:
        machine.items(len(items))
        machine.charge(len(items) // 4)
        machine.pass_gaps()
        return list(items.items())
    return [tuple(machine.listed(pair)) for pair in machine.listed(items)]


def _copied(machine: Machine, items: dict[Any, Any]) -> dict[Any, Any]:
    machine.charge(len(items) // 4 + 1)
    machine.pass_gaps()
    machine.search_all(items)
    return items.copy()


def _set(name: str) -> Method:
    function = getattr(OrderedSet, name)

    def call(_: Machine, items: Any, *args: Any) -> Any:
        return function(items, *args)

    return call


def _random(name: str) -> Method:
    function = getattr(Random, name)

    def call(machine: Machine, random: Random, *args: Any) -> Any:
        machine.charge(4)
        return function(random, *args)

    return call


def _shuffle(machine: Machine, random: Random, items: list[Any]) -> None:
    if type(items) is not list:
        raise TypeError("shuffle takes a list")
    machine.charge(4 * len(items))
    for place in range(len(items) - 1, 0, -1):
        other = random.below(place + 1)
        items[place], items[other] = items[other], items[place]


METHODS: Final[dict[type, dict[str, Method]]] = {
    str: _TEXT,
    list: {
        "append": _once(list, "append"),
        "extend": _extend,
        "pop": _pop,
        "sort": _sort,
        **{n: _shallow(list, n) for n in ("clear", "copy", "insert", "reverse")},
        **{n: _deep(list, n) for n in ("count", "index", "remove")},
    },
    tuple: {n: _deep(tuple, n) for n in ("count", "index")},
    dict: {
        "update": _update,
        **{n: _keyed(n) for n in ("get", "pop", "setdefault")},
        **{n: _view(n) for n in ("items", "keys", "values")},
        "clear": _shallow(dict, "clear"),
        "copy": _copied,
    },
    OrderedSet: {
        n: _set(n)
        for n in (
            "add",
            "clear",
            "copy",
            "difference",
            "discard",
            "intersection",
            "isdisjoint",
            "issubset",
            "issuperset",
            "remove",
            "symmetric_difference",
            "union",
            "update",
        )
    },
    int: {"bit_length": _once(int, "bit_length")},
    float: {"is_integer": _once(float, "is_integer")},
    Random: {**{n: _random(n) for n in ("random", "randint", "choice")}, "shuffle": _shuffle},
}
"""Type -> name of a method -> what is called with the machine, the value and the arguments."""

ATTRIBUTES: Final[dict[type, frozenset[str]]] = {}
"""Type -> the attributes that may be read; types of ours add themselves."""

ordered = _ordered
pairs = _pairs
