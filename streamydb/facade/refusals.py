"""Find the field of a refused transaction that is at fault, for the answer to its sender.

The reason code alone is in the wire contract. Field and value are looked for only when a
transaction is refused, and are told to nobody but the sender.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from streamydb import errors, limits
from streamydb.records.formats import UNREADABLE
from streamydb.records.rejection import valid_id, valid_key
from streamydb.records.transaction import Transaction

_Path: TypeAlias = tuple[str | int, ...]

_GIVEN_CHARS_MAX: Final = 100
_STEP: Final = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_SAID: Final = re.compile(r"(?P<what>.*?)(?: - at `\$\.?(?P<path>.*)`)?", re.DOTALL)
_LISTS: Final = frozenset({"checks", "reads", "updates", "keys", "locks"})


class Culprit(NamedTuple):
    """The field at fault, as ``updates[0].by``; what it holds, shortened JSON; what is wrong."""

    field: str
    given: str | None
    wrong: str


def culprit(code: str, payload: bytes) -> Culprit | None:
    """Return the first field that the reason code of a refused payload is about, if one is."""
    try:
        return _found(code, payload, json.loads(payload))
    except (ValueError, RecursionError):  # too deep, or no JSON: there is no field to name
        return None


def _found(code: str, payload: bytes, record: Any) -> Culprit | None:
    if code == errors.INVALID_TRANSACTION:
        return _of_shape(payload, record)
    if code == errors.DUPLICATE_UPDATE:
        found = _repeated(record)
    elif at_fault := _AT_FAULT.get(code):
        found = next((path for path, value in _fields(record, ()) if at_fault(path, value)), None)
    else:
        return None
    if found is None:
        return None
    return Culprit(_named(found), _given(record, found), errors.REJECTED_CODES[code])


def _of_shape(payload: bytes, record: Any) -> Culprit | None:
    """Return what the typed decoder says, or a check that compares nothing."""
    try:
        msgspec.json.decode(payload, type=Transaction)
    except UNREADABLE as fault:
        said = _SAID.fullmatch(str(fault))
        if said is None:
            return None
        path = _path_of(said)
        return Culprit(_named(path), _given(record, path), f"{said['what']}.")
    checks = enumerate(record.get("checks", []))
    bare = [number for number, check in checks if check.keys() <= {"key", "range"}]
    if not bare:
        return None
    path = ("checks", bare[0])
    return Culprit(_named(path), _given(record, path), "The check compares nothing.")


def place_of(fault: Exception) -> str:
    """Return the field that an error of msgspec names, as ``keys[0]``; empty for the whole."""
    said = _SAID.fullmatch(str(fault))
    return "" if said is None else _named(_path_of(said))


def _path_of(said: re.Match[str]) -> _Path:
    steps = _STEP.findall(said["path"] or "")
    return tuple(int(index) if index else name for name, index in steps)


def _fields(value: Any, path: _Path) -> Iterator[tuple[_Path, Any]]:
    yield path, value
    inner = value.items() if isinstance(value, dict) else ()
    for step, each in enumerate(value) if isinstance(value, list) else inner:
        yield from _fields(each, (*path, step))


def _is_no_key(path: _Path, value: Any) -> bool:
    if len(path) == 2 and path[0] == "asserts":
        return not valid_key(path[1])
    named = path[:1] in {("checks",), ("updates",)} and path[2:] == ("key",)
    named = named or (path[:1] in {("checks",), ("reads",)} and path[2:3] == ("range",)
                      and len(path) == 4)  # fmt: skip
    listed = len(path) > 1 and path[-2] in _LISTS and isinstance(path[-1], int)
    listed = listed and (path[0] in {"reads", "locks"} or path[:1] == ("call",))
    return (named or listed) and not valid_key(value)


def _is_written(path: _Path) -> bool:
    return (path[:1] == ("updates",) and path[2:] == ("key",)) or path[:2] == ("call", "keys")


def _is_large(path: _Path, value: Any) -> bool:
    """Return True if a field holds a value that is too large.

    Its JSON is measured here, which is about as long as the canonical form.
    """
    top = len(path) == 2 and path[0] == "asserts"
    inner = len(path) == 3 and path[-1] in {"value", "eq", "ne"}
    return (top or inner) and len(json.dumps(value)) > limits.VALUE_BYTES_MAX


def _is_beyond(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    fits = limits.INTEGER_MIN <= value <= limits.INTEGER_MAX if type(value) is int else True
    return not fits


_AT_FAULT: Final[dict[str, Callable[[_Path, Any], bool]]] = {
    errors.INVALID_ID: lambda path, value: path == ("id",) and valid_id(value) is None,
    errors.INVALID_KEY: _is_no_key,
    errors.NULL_VALUE: lambda path, value: (
        path[:1] == ("updates",) and path[2:] == ("value",) and value is None
    ),
    errors.NUMBER_RANGE: lambda _, value: _is_beyond(value),
    errors.VALUE_TOO_LARGE: _is_large,
    errors.RESERVED_KEY: lambda path, value: _is_written(path) and str(value).startswith("$"),
    errors.RESERVED_ID: lambda path, _: path == ("id",),
    errors.DEADLINE_TOO_FAR: lambda path, _: path == ("deadline_ms",),
}


def _repeated(record: Any) -> _Path | None:
    """Return the first update whose key another before it has."""
    seen = set[str]()
    for n, update in enumerate(record["updates"]):
        if update["key"] in seen:
            return ("updates", n, "key")
        seen.add(update["key"])
    return None


def _named(path: _Path) -> str:
    """Write a path as JavaScript would; the whole record is empty."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return "".join(steps).removeprefix(".")


def _given(record: Any, path: _Path) -> str | None:
    """Return the JSON of the field at a path, shortened; None if there is none."""
    value = record
    try:
        for step in path:
            value = value[step]
    except (KeyError, IndexError, TypeError):
        return None
    text = json.dumps(value)
    return text if len(text) <= _GIVEN_CHARS_MAX else text[:_GIVEN_CHARS_MAX] + "…"
