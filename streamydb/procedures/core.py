"""Run one call of a stored procedure: a pure function of its code, its arguments and its keys.

In: a compiled module, the call, a host that shows the declared keys, and the transaction's place in
the order. Out: what became of it. Nothing else goes in, and nothing else comes out: no clock, no
chance, no file, no state from call to call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec

from streamydb import errors
from streamydb import records as r
from streamydb.limits import PROCEDURE_STEPS_MAX
from streamydb.procedures.call_flow import Flow, keys_of, text_of
from streamydb.procedures.data import canonical_of, decoded
from streamydb.procedures.declare import Abort, DeclaredKeys
from streamydb.procedures.follow_ups import NO_OUTPUTS, Outputs
from streamydb.procedures.machine import Machine
from streamydb.procedures.meter import Stop, cut_reason, is_of_language
from streamydb.procedures.modules import Module
from streamydb.procedures.view import Host, ProcedureView, Stamp
from streamydb.procedures.workspaces import Workspace

__all__ = ["Called", "ModuleVersion", "declared_keys", "run", "version_of"]


class ModuleVersion(msgspec.Struct, frozen=True):
    """The value under a module's key: the hash of its file, and its procedures' arguments."""

    hash: str
    procedures: dict[str, tuple[str, ...]]


_decode_version = msgspec.json.Decoder(ModuleVersion).decode


@lru_cache(maxsize=256)
def version_of(value: bytes) -> ModuleVersion:
    """The deployed version in the value of a module's key."""
    return _decode_version(value)


@dataclass(slots=True)
class Called:
    """The outcome of a call.

    ``code`` is None when it may commit: then ``returned`` is the canonical form of what it
    returned, and ``writes`` has the last value of each key it wrote (None: deleted), in the order
    of the first writes. ``outputs``: what it gives to its workflow.
    """

    code: str | None = None
    reason: str | None = None
    returned: bytes = b"null"
    writes: dict[str, bytes | None] = field(default_factory=dict)
    steps: int = 0
    outputs: Outputs = NO_OUTPUTS


def run(
    module: Module,
    name: str,
    args: bytes,
    host: Host,
    place: Stamp,
    batch: r.TakenBatch | None = None,
    *,
    steps: int = PROCEDURE_STEPS_MAX,
) -> Called:
    """Call procedure ``name`` of ``module`` with ``args`` (canonical bytes of an object).

    ``batch``: of a follow-up, whose turn it is (see `follow_ups.turn_of`). ``steps``: at most so
    many.
    """
    workspace = module.workspaces.taken(steps)
    machine = workspace.machine
    flow = None if module.graph is None else Flow(module, module.graph, name, batch)
    view = ProcedureView(machine, host, place, flow)
    called = None
    try:
        called = _ended(workspace, module, name, args, view)
    finally:
        spent, broken = steps - machine.left, machine.broken
        machine.stop = None  # its traceback refers to the machine
        if called is None or broken is not None:
            workspace.loaded = False  # no call should find it
        module.workspaces.left(workspace)
    if broken is not None:
        raise broken
    called.steps = spent
    return called


def _ended(
    workspace: Workspace, module: Module, name: str, args: bytes, view: ProcedureView
) -> Called:
    """Run the call to its end; a stop of the meter holds, even if other code ran after it.

    An error that no operation of a procedure raises gives no verdict: it is raised.
    """
    machine, namespace = workspace.machine, workspace.names
    outputs = NO_OUTPUTS
    try:
        if not workspace.loaded:
            module.load_into(workspace)
        if view.flow is not None:
            view.flow.namespace = namespace
        returned = canonical_of(machine, namespace[name](view, **decoded(machine, args)))
        if view.flow is not None and machine.stop is None:
            place = (view.seq, view.now, view.id)
            outputs = view.flow.finish(machine, view.host, place, view.writes)
    except Stop as stop:
        return Called(stop.code, stop.reason)
    except Abort as abort:
        code, reason = errors.PROCEDURE_ABORTED, text_of(abort)
    except RecursionError:
        code, reason = errors.BUDGET_EXCEEDED, "depth"
    except Exception as error:
        if not is_of_language(error):
            raise
        code, reason = errors.PROCEDURE_ERROR, type(error).__name__
    else:
        if machine.stop is None:
            return Called(None, None, returned, view.writes, outputs=outputs)
        code = ""
    if machine.stop is not None:
        return Called(machine.stop.code, machine.stop.reason)
    return Called(code, cut_reason(reason))


def declared_keys(module: Module, name: str, args: Mapping[str, Any]) -> DeclaredKeys | None:
    """The keys and ranges that the procedure's key function gives; None without one.

    Raises:
        ValueError: the function fails, or gives something else.

    """
    with module.namespace(Machine()) as namespace:
        return keys_of(module, namespace, name, args)
