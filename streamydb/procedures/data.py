"""Values as a procedure gives and takes them: its own objects, and canonical bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from streamydb import errors
from streamydb import records as r
from streamydb.errors import ValueRejected
from streamydb.limits import DEPTH_MAX, INTEGER_MAX, INTEGER_MIN, PROCEDURE_DEPTH_MAX
from streamydb.procedures.meter import TEXT_PER_STEP
from streamydb.records.values import encode_normal

if TYPE_CHECKING:
    from streamydb.procedures.machine import Machine

_WALKED: Final = (dict, list, tuple)
"""They have been charged for when their canonical form is made."""

value_of = msgspec.json.Decoder().decode
"""Objects of a value's canonical bytes."""


def canonical_of(machine: Machine, value: Any) -> bytes:
    """Canonical bytes of a value that a procedure gives, charged.
    Raises TypeError, OverflowError: it is no value.
    """
    kind = type(value)
    if kind is int and INTEGER_MIN <= value <= INTEGER_MAX:
        data = b"%d" % value
    elif value is None:
        data = b"null"
    else:
        data = plain_bytes(machine, value)
    machine.left -= len(data) // TEXT_PER_STEP + 1
    if machine.left < 0:
        machine.exceed("steps")
    return data


def plain_bytes(machine: Machine, value: Any) -> bytes:
    """As `canonical_of`, where the bytes themselves are charged for elsewhere."""
    try:
        kind = type(value)
        if (kind is dict or kind is list or kind is tuple) and _is_normal(machine, value, 0):
            return encode_normal(value)
        return r.canonical(value if kind in _WALKED else machine.walk(value))
    except UnicodeEncodeError:
        return _refused(value)
    except ValueRejected as fault:
        raise unfit(fault) from None


def _refused(value: Any) -> bytes:
    """Refuse a text that is not Unicode, as `canonical` does."""
    try:
        return r.canonical(value)
    except ValueRejected as fault:
        raise unfit(fault) from None


def _is_normal(machine: Machine, value: Any, depth: int) -> bool:
    """Charge for a dict, list or tuple as `Meter.walk`; return True if its canonical form needs no
    other look at it: false also if that is not found out here.
    Raises TypeError: as `Meter.walk`.
    """
    if depth > PROCEDURE_DEPTH_MAX:
        machine.exceed("depth")
    items = value
    if type(value) is dict:
        machine.left -= len(value) // 2 + 1
        if machine.left < 0:
            machine.exceed("steps")
        if machine.deleted:
            machine.pass_gaps()
        for name in value:
            if type(name) is not str or len(name) > TEXT_PER_STEP:
                return _named_anyhow(machine, value, depth)
        items = value.values()
    else:
        machine.left -= len(value) // 4 + 1
        if machine.left < 0:
            machine.exceed("steps")
    normal = depth < DEPTH_MAX
    for item in items:  # as `_is_plain`, which would take most of the time to be called
        kind = type(item)
        if kind is int:
            if not INTEGER_MIN <= item <= INTEGER_MAX:
                normal = False
        elif kind is str:
            if len(item) > TEXT_PER_STEP:
                machine.text(len(item))
        elif kind is not bool and item is not None and not _is_plain(machine, item, depth):
            normal = False
    return normal


def _named_anyhow(machine: Machine, value: dict[Any, Any], depth: int) -> bool:
    """As the rest of `_is_normal`, for a dict with names that cost something."""
    normal = depth < DEPTH_MAX
    for name, item in value.items():
        if type(name) is not str:
            normal = False
            machine.walk(name, depth + 1)
            machine.search(len(value), name)
        elif len(name) > TEXT_PER_STEP:
            machine.text(len(name))
        if not _is_plain(machine, item, depth):
            normal = False
    return normal


def _is_plain(machine: Machine, item: Any, depth: int) -> bool:
    """As `_is_normal`, for what is in a dict, list or tuple."""
    kind = type(item)
    if kind is int:
        return INTEGER_MIN <= item <= INTEGER_MAX  # type: ignore[no-any-return]
    if kind is str:
        if len(item) > TEXT_PER_STEP:
            machine.text(len(item))
        return True
    if kind is bool or item is None:
        return True
    if kind is list or kind is dict or kind is tuple:
        return _is_normal(machine, item, depth + 1)
    machine.walk(item, depth + 1)
    return False


def unfit(fault: ValueRejected) -> Exception:
    """Return the exception that a procedure sees for a value that cannot be stored."""
    kind = OverflowError if fault.code == errors.NUMBER_RANGE else TypeError
    return kind(str(fault))


def decoded(machine: Machine, data: bytes | None, default: Any = None) -> Any:
    """A stored value as objects of the procedure's own, charged."""
    if data is None:
        return default
    machine.left -= len(data) // 32 + 1
    if machine.left < 0:
        machine.exceed("steps")
    return value_of(data)


def name_of(machine: Machine, value: Any) -> str:
    """Return what a procedure gave as a name, for a reason: of what is no data, its kind.

    Python's own text of a function or a set tells where it lies in memory.
    """
    try:
        return machine.shown(value)
    except TypeError:
        return type(value).__name__
