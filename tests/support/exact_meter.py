"""The meter of procedures in its plainest form, operation by operation, for comparison.

What calls do most is written twice in `streamydb.procedures`: once to be read, which is here, and
once to be quick. `exact` puts the readable forms in their places: methods through one helper, `db`
through updates, walks and canonical forms item by item, a new namespace for each call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import msgspec

from streamydb import errors
from streamydb import records as r
from streamydb.errors import ValueRejected
from streamydb.limits import DEPTH_MAX, PROCEDURE_DEPTH_MAX, VALUE_BYTES_MAX
from streamydb.procedures import modules, transform, view
from streamydb.procedures.data import unfit
from streamydb.procedures.machine import Machine
from streamydb.procedures.meter import TEXT_PER_STEP, Meter
from streamydb.procedures.methods import METHODS
from streamydb.procedures.modules import Module
from streamydb.procedures.quick import QUICK
from streamydb.procedures.view import ProcedureView
from streamydb.records.values import canonical_number

__all__ = ["exact"]

_ATOMS = {int, float, bool, type(None)}


def _walk(self: Meter, value: Any, depth: int = 0) -> Any:
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
            self.walk(item, depth + 1)
    elif kind is dict:
        self.charge(len(value) // 2 + 1)
        self.pass_gaps()
        for name, item in value.items():
            self.walk(name, depth + 1)
            if type(name) is not str:
                self.search(len(value), name)
            self.walk(item, depth + 1)
    elif kind is range:
        self.charge(1)
    elif getattr(kind, "is_set", False):
        self.walk(value.items, depth)
    else:
        raise TypeError(f"a {kind.__name__} is no data")
    return value


def _normal(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return value
    if kind is int or kind is float:
        return canonical_number(value)
    if depth > DEPTH_MAX:
        raise ValueRejected(errors.TOO_DEEP, "")
    if kind is list or kind is tuple:
        return [_normal(item, depth + 1) for item in value]
    if kind is dict and all(type(name) is str for name in value):
        return {name: _normal(item, depth + 1) for name, item in value.items()}
    raise ValueRejected(errors.INVALID_JSON, "")


def _canonical_of(machine: Machine, value: Any) -> bytes:
    try:
        data = msgspec.json.encode(_normal(machine.walk(value), 1), order="deterministic")
    except UnicodeEncodeError:
        raise TypeError from None
    except ValueRejected as fault:
        raise unfit(fault) from None
    machine.text(len(data))
    return data


def _decoded(machine: Machine, data: bytes | None, default: Any = None) -> Any:
    if data is None:
        return default
    machine.charge(len(data) // 32 + 1)
    return r.decode_value(data)


def _get(machine: Machine, view: ProcedureView, key: str, default: Any = None) -> Any:
    return _decoded(machine, view.current(key), default)


def _put(
    machine: Machine, view: ProcedureView, key: str, value: Any, *, ttl_ms: Any = None
) -> None:
    data = _canonical_of(machine, value)
    if value is None:
        raise ValueError("null cannot be stored; use delete")
    view.current(key, write=True)
    if len(data) > VALUE_BYTES_MAX:
        machine.end(errors.VALUE_TOO_LARGE, key)
    view.update(r.Put(key, data, msgspec.UNSET if ttl_ms is None else ttl_ms))


def _add(
    machine: Machine, view: ProcedureView, key: str, by: Any = 1, *, min: Any = None,  # noqa: A002
    max: Any = None,  # noqa: A002
) -> Any:  # fmt: skip
    update = r.Add(key, _number(machine, by))
    if min is not None:
        update.min = _number(machine, min)
    if max is not None:
        update.max = _number(machine, max)
    return _decoded(machine, view.update(update))


def _number(machine: Machine, value: Any) -> Any:
    machine.charge(2)
    if type(value) not in (int, float):
        raise TypeError(f"a {type(value).__name__} is no number")
    try:
        return r.canonical_number(value)
    except ValueRejected as fault:
        raise unfit(fault) from None


def _grown(machine: Machine, left: Any, right: Any) -> Any:
    return machine.augment("add", left, right)


_uncached: Callable[..., Module] = modules._compiled.__wrapped__


@contextmanager
def exact(text: bytes) -> Iterator[Module]:
    """The module of a text, whose calls are metered so while this is entered."""
    forms = {"get": _get, "put": _put, "add": _add}
    patches: list[Any] = [
        mock.patch.object(transform, "_METHOD_OF", {}),
        mock.patch.object(transform, "_QUICK", {}),
        mock.patch.object(transform, "_FILLED", {}),
        mock.patch.object(transform, "QUICKENS", False),
        mock.patch.dict(QUICK, {"grown": _grown}),
        mock.patch.object(modules, "keeps_nothing", return_value=False),
        mock.patch.object(modules, "_compiled", _uncached),
        mock.patch.object(Meter, "walk", _walk),
        mock.patch.dict(METHODS[ProcedureView], forms),
        mock.patch("streamydb.procedures.core.canonical_of", _canonical_of),
        mock.patch.object(view, "canonical_of", _canonical_of),
    ]
    with ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield _uncached("m", text, "m.py")
