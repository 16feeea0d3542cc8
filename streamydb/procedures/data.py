"""Values as a procedure gives and takes them: its own objects, and canonical bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from streamydb import errors
from streamydb import records as r
from streamydb.errors import ValueRejected
from streamydb.limits import INTEGER_MAX, INTEGER_MIN
from streamydb.procedures.meter import TEXT_PER_STEP

if TYPE_CHECKING:
    from streamydb.procedures.machine import Machine

__all__ = ["canonical_of", "decoded", "name_of", "plain_bytes", "unfit", "value_of"]

value_of = msgspec.json.Decoder().decode
"""Objects of a value's canonical bytes."""


def canonical_of(machine: Machine, value: Any) -> bytes:
    """Canonical bytes of a value that a procedure gives, charged.

    Raises:
        TypeError, OverflowError: it is no value.

    """
    if type(value) is int and INTEGER_MIN <= value <= INTEGER_MAX:
        data = b"%d" % value
    else:
        data = b"null" if value is None else plain_bytes(machine, value)
    machine.left -= len(data) // TEXT_PER_STEP + 1
    if machine.left < 0:
        machine.exceed("steps")
    return data


def plain_bytes(machine: Machine, value: Any) -> bytes:
    """As `canonical_of`, where the bytes themselves are charged for elsewhere."""
    try:
        return r.canonical(machine.walk(value))
    except ValueRejected as fault:
        raise unfit(fault) from None


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
