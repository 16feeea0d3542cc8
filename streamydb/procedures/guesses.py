"""Helpers of the speculative form of a module (see `speculation`), in place of those of `quick`.

They charge no fewer steps than those do, and give the call up where a value is unusual.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

import msgspec

from streamydb.limits import DEPTH_MAX, INTEGER_MAX, INTEGER_MIN, VALUE_BYTES_MAX
from streamydb.procedures.machine import Machine
from streamydb.procedures.quick import QUICK
from streamydb.procedures.view import UNDECLARED, ProcedureView
from streamydb.records.values import encode_normal

_NESTED_BYTES: Final = 2 * DEPTH_MAX
"""Shorter values are not nested too deeply."""


def give_up_guess(machine: Machine) -> NoReturn:
    """End the call: the other form executes it."""
    machine.exceed("speculation")


def kept(machine: Machine, value: Any) -> Any:
    """The value, if code may have such a one."""
    kind = type(value)
    if kind is int:
        return value if INTEGER_MIN <= value <= INTEGER_MAX else give_up_guess(machine)
    return give_up_guess(machine) if kind is float else value


def computed(machine: Machine, helper: str, left: Any, right: Any) -> Any:
    """An operation of two values of any kind."""
    operate: Callable[[Any, Any], Any] = getattr(machine, helper)
    return kept(machine, operate(left, right))


def _no_float(_: str) -> NoReturn:
    raise TypeError


_decode: Final = msgspec.json.Decoder(float_hook=_no_float).decode


def get1(machine: Machine, owner: Any, key: Any) -> Any:
    """owner.get(key)."""
    if type(owner) is not ProcedureView:
        return machine.method1(owner, "get", key)
    data: Any = owner.values.get(key, UNDECLARED)
    if data is UNDECLARED:
        data = owner.stored(key, False)
    if data is None:
        machine.left -= 1
        return None
    machine.left -= len(data) // 32 + 2
    return _decode(data)


def get2(machine: Machine, owner: Any, key: Any, default: Any) -> Any:
    """owner.get(key, default)."""
    if type(owner) is not ProcedureView:
        return machine.method2(owner, "get", key, default)
    found = get1(machine, owner, key)
    return default if found is None else found


def put2(machine: Machine, owner: Any, key: Any, value: Any) -> None:
    """owner.put(key, value).

    The other form charges for each list, dict and long text in the value: less than its bytes.
    """
    if type(owner) is not ProcedureView or type(key) is not str or value is None:
        give_up_guess(machine)
    data = b"%d" % value if type(value) is int else encode_normal(value)
    size = len(data)
    machine.left -= size + 2
    if size > _NESTED_BYTES and (
        size > VALUE_BYTES_MAX or data.count(b"[") + data.count(b"{") > DEPTH_MAX
    ):
        give_up_guess(machine)
    if key not in owner.writable and key not in owner.writes:
        owner.stored(key, True)
    owner.writes[key] = owner.values[key] = data


def method2(machine: Machine, owner: Any, name: str, first: Any, second: Any) -> Any:
    """owner.name(first, second): `append` to the list of a key, if it is in fact a short one."""
    if type(owner) is ProcedureView and name == "append" and type(second) is int:
        before = owner.values.get(first)
        if type(before) is bytes and first in owner.writable and before[:1] == b"[":
            data = b"%b,%d]" % (before[:-1], second) if len(before) > 2 else b"[%d]" % second
            machine.left -= len(before) // 64 + 4
            if len(data) <= VALUE_BYTES_MAX:
                owner.writes[first] = owner.values[first] = data
                return None
    return machine.method2(owner, name, first, second)


def placed(machine: Machine, owner: Any, key: Any) -> Any:
    """The key, or index, of an item that is stored: in a dict, a text."""
    if type(owner) is dict and type(key) is not str:
        give_up_guess(machine)
    return machine.placed(owner, key)


SPECULATIVE: Final[dict[str, Callable[..., Any]]] = {
    **QUICK,
    "get1": get1, "get2": get2, "put2": put2, "placed": placed, "kept": kept,
    "method2": method2, "computed": computed, "give_up_guess": give_up_guess,
}  # fmt: skip
"""The helpers by the names under which code calls them."""
