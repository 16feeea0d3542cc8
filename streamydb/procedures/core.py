"""Run one call of a stored procedure: a pure function of its code, its arguments and its keys.

In: a compiled module, the call, a host that shows the declared keys, and the transaction's place in
the order. Out: what became of it. Nothing else goes in, and nothing else comes out: no clock, no
chance, no file, no state from call to call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

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
from streamydb.procedures.modules import Module, Workspace
from streamydb.procedures.view import Host, Known, ProcedureView, Stamp

_GIVEN_UP_FREE: Final = 8
_GIVEN_UP_SHARE: Final = 4
"""A call that is given up costs twice: if a fourth of them are, it does not pay to try."""


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
    place: Stamp | tuple[int, int, str],
    batch: r.TakenBatch | None = None,
    *,
    steps: int = PROCEDURE_STEPS_MAX,
    known: Known | None = None,
    taken: dict[str, Any] | None = None,
) -> Called:
    """Call procedure ``name`` of ``module`` with ``args`` (canonical bytes of an object).

    ``batch``: of a follow-up, whose turn it is (see `follow_ups.turn_of`). ``steps``: at most so
    many. ``known``: keys that are at hand. ``taken``: the objects of ``args``, if nobody else has
    them; else they are made from the bytes.
    """
    workspace = module.workspaces.taken(steps)
    machine = workspace.machine
    flow = None if module.graph is None else Flow(module, module.graph, name, batch)
    view = ProcedureView(machine, host, place, flow, known)
    called = None
    try:
        called = _ended(workspace, module, name, (args, taken), view)
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


class Guesser:
    """Executes calls of a procedure by the speculative form of its module, one after the other.

    Attributes:
        tried: how many calls.
        given_up: how many of them have to be executed by the other form.
        left: the steps that the last one has left.
    """

    __slots__ = (
        "_module", "_name", "_procedure", "_steps", "_view", "_workspace", "given_up", "left",
        "tried",
    )  # fmt: skip

    def __init__(self, module: Module, name: str) -> None:
        """Execute procedure ``name`` of a module in its speculative form."""
        self._module, self._name = module, name
        self._workspace: Workspace | None = None
        self.tried = self.given_up = self.left = 0

    def pays(self) -> bool:
        """Return True if another call should be tried: not where many were given up."""
        return self.given_up <= _GIVEN_UP_FREE or self.given_up * _GIVEN_UP_SHARE <= self.tried

    def call(
        self, args: dict[str, Any], size: int, host: Host, place: tuple[int, int, str], known: Known
    ) -> Called | None:
        """Execute a call as `run` does; None: it is given up.

        Then ``args`` and ``known`` are no longer what they were. The steps are not told.

        Args:
            args: objects that nobody else has.
            size: their canonical form has so many bytes, at most.
            host: shows the declared keys, as for `run`.
            place: the transaction's.
            known: all keys of the call.
        """
        machine = (self._workspace or self._begun(host)).machine
        self.tried += 1
        machine.left, machine.depth = self._steps - size // 32 - 1, 0
        view = self._view
        view.host, view.values, view.writable = host, known.values, known.writable
        view.seq, view.now, view.id = place
        view.writes = writes = dict[str, bytes | None]()
        called = None
        try:
            called = Called(
                None, None, canonical_of(machine, self._procedure(view, **args)), writes
            )
        except Abort as abort:
            called = Called(errors.PROCEDURE_ABORTED, cut_reason(text_of(abort)))
        except Stop:
            machine.stop = None  # its traceback refers to the machine
        except Exception as error:
            if not is_of_language(error):
                raise
        self.left = machine.left
        if called is None or machine.left < 0:
            self.given_up += 1
            return None
        return called

    def _begun(self, host: Host) -> Workspace:
        """Return a workspace in which the module's code has been executed."""
        workspace = self._workspace = self._module.workspaces.taken(PROCEDURE_STEPS_MAX)
        if not workspace.loaded:
            self._module.load_into(workspace)
        self._steps = workspace.machine.left
        self._procedure = workspace.names[self._name]
        self._view = ProcedureView(workspace.machine, host, (0, 0, ""))
        return workspace

    def end(self) -> None:
        """Leave the workspace to others, until the next call."""
        if self._workspace is not None:
            self._module.workspaces.left(self._workspace)
            self._workspace = None
            del self._procedure, self._view  # they refer to it


def _ended(
    workspace: Workspace,
    module: Module,
    name: str,
    given: tuple[bytes, dict[str, Any] | None],
    view: ProcedureView,
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
        args, taken = given
        if taken is None:
            taken = decoded(machine, args)
        else:
            machine.charge(len(args) // 32 + 1)
        returned = canonical_of(machine, namespace[name](view, **taken))
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
            return Called(None, None, returned, view.writes, 0, outputs)
        code = ""
    if machine.stop is not None:
        return Called(machine.stop.code, machine.stop.reason)
    return Called(code, cut_reason(reason))


def declared_keys(module: Module, name: str, args: Mapping[str, Any]) -> DeclaredKeys | None:
    """The keys and ranges that the procedure's key function gives; None without one.
    Raises ValueError: the function fails, or gives something else.
    """
    with module.namespace(Machine()) as namespace:
        return keys_of(module, namespace, name, args)
