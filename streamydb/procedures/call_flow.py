"""A call's part in its module's workflow: its emissions, its windows, and the calls within it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from streamydb import errors
from streamydb import records as r
from streamydb.errors import ValueRejected
from streamydb.limits import (
    EMITTED_BYTES_MAX,
    EMITTED_RECORDS_MAX,
    VALUE_BYTES_MAX,
    WINDOW_ITEMS_MAX,
)
from streamydb.procedures.data import name_of, plain_bytes, unfit
from streamydb.procedures.declare import Abort, DeclaredKeys, declared
from streamydb.procedures.follow_ups import (
    NO_OUTPUTS,
    Emission,
    FollowUpRefused,
    Outputs,
    counts_of,
    outputs_of,
)
from streamydb.procedures.graph import WorkflowGraph, flow_key, window_key
from streamydb.procedures.meter import Stop, is_of_language
from streamydb.procedures.methods import METHODS
from streamydb.procedures.transform import KEYS_OF
from streamydb.records import canonical, decode_value
from streamydb.records.ranges import Range

if TYPE_CHECKING:
    from streamydb.procedures.graph import Window
    from streamydb.procedures.machine import Machine
    from streamydb.procedures.modules import Module


class _Host(Protocol):
    def look(self, key: str) -> tuple[bytes | None, int]: ...

    def may(self, key: str, *, write: bool) -> bool: ...


class Flow:
    """The effects of one call on its workflow."""

    __slots__ = (
        "batch", "emissions", "graph", "module", "namespace", "nest", "running", "size", "windows"
    )  # fmt: skip

    def __init__(
        self, module: Module, graph: WorkflowGraph, name: str, batch: r.TakenBatch | None
    ) -> None:
        """Procedure ``name`` is called; ``batch``: of a follow-up."""
        self.module = module
        self.graph = graph
        self.batch = batch
        self.running = name
        self.nest: str | None = None
        self.namespace: dict[str, Any] = {}
        self.emissions: list[Emission] = []
        self.windows: dict[str, SlidingWindow] = {}
        self.size = 0

    def emit(self, machine: Machine, host: _Host, stream: Any, value: bytes) -> None:
        """Add a record to a stream."""
        if stream not in self.graph.emits.get(self.running, ()):
            machine.end(errors.UNKNOWN_STREAM, name_of(machine, stream))
        self._declared(machine, host, flow_key(self.module.name))
        self.size += len(value)
        if len(value) > VALUE_BYTES_MAX:
            machine.end(errors.VALUE_TOO_LARGE, stream)
        if len(self.emissions) >= EMITTED_RECORDS_MAX or self.size > EMITTED_BYTES_MAX:
            machine.exceed("emits")
        inside: tuple[str, ...] = ()
        if self.nest is not None:
            members = self.graph.nested[self.nest]
            inside = tuple(t for t in self.graph.triggers.get(stream, ()) if t in members)
        self.emissions.append(Emission(stream, value, inside))

    def window(self, machine: Machine, host: _Host, name: Any, now: int) -> SlidingWindow:
        """A window of the procedure that runs."""
        declared = self.graph.windows.get(name) if type(name) is str else None
        if declared is None or declared.owner != self.running:
            machine.end(errors.NOT_THE_OWNER, name_of(machine, name))
        if name not in self.windows:
            key = window_key(self.module.name, name)
            self._declared(machine, host, key)
            before = host.look(key)[0]
            machine.charge(len(before or b"") // 32 + 1)
            self.windows[name] = SlidingWindow(declared, before, now)
        return self.windows[name]

    def call(self, machine: Machine, view: Any, name: Any, args: dict[str, Any]) -> Any:
        """Run a nested procedure, and those inside that its streams trigger; all or nothing."""
        outer = self.nest or self.running
        if self.running != outer or name not in self.graph.nested.get(outer, ()):
            machine.end(errors.UNKNOWN_PROCEDURE, name_of(machine, name))
        self.nest = outer
        try:
            return self._inside(machine, view, name, args)
        except RecursionError:
            raise
        except (Exception, Abort) as error:
            if isinstance(error, Exception) and not is_of_language(error):
                raise
            aborted = isinstance(error, Abort)
            code = errors.PROCEDURE_ABORTED if aborted else errors.PROCEDURE_ERROR
            machine.end(code, text_of(error) if aborted else type(error).__name__)
        finally:
            self.nest, self.running = None, outer

    def _inside(self, machine: Machine, view: Any, name: str, args: dict[str, Any]) -> Any:
        machine.enter()
        before = len(self.emissions)
        self.running = name
        returned = self.namespace[name](view, **args)
        batches: dict[str, list[Any]] = {}
        for emission in self.emissions[before:]:
            for target in emission.inside:
                machine.charge(len(emission.value) // 32 + 1)
                batches.setdefault(target, []).append(r.decode_value(emission.value))
        for target in sorted(batches, key=lambda each: self.graph.rank[each]):
            self._inside(machine, view, target, {"batch": batches[target]})
        machine.leave()
        return returned

    def finish(
        self,
        machine: Machine,
        host: _Host,
        place: tuple[int, int, str],
        writes: dict[str, bytes | None],
    ) -> Outputs:
        """Put windows and counts into ``writes``; what goes out. A stop of the meter may end it."""
        for name, window in self.windows.items():
            key = window_key(self.module.name, name)
            value = stored(machine, window, key)
            if value != window.before:
                writes[key] = value
        if not self.emissions and self.batch is None:
            return NO_OUTPUTS
        key = flow_key(self.module.name)
        counts = counts_of(host.look(key)[0])

        def told(name: str, args: dict[str, Any]) -> DeclaredKeys:
            found = keys_of(self.module, self.namespace, name, args, follow_up=True)
            if found is None:
                raise ValueError(name)
            return found

        for emission in self.emissions:
            targets = len(self.graph.triggers.get(emission.stream, ()))
            machine.charge((targets + 1) * (len(emission.value) // 32 + 1))
        try:
            found = outputs_of(self.module, self.emissions, place, self.batch, counts, told)
        except FollowUpRefused as refused:
            machine.end(errors.FOLLOW_UP_REFUSED, str(refused))
        done = counts.done + (self.batch is not None)
        made = counts.made + len(found.follow_ups)
        if (done, made) != (counts.done, counts.made):
            writes[key] = r.canonical({"done": done, "made": made})
        return found

    def _declared(self, machine: Machine, host: _Host, key: str) -> None:
        if not host.may(key, write=True):
            machine.end(errors.UNDECLARED_KEY, key)


def text_of(abort: BaseException) -> str:
    """The reason of an `Abort`."""
    reason = abort.args[0] if abort.args else ""
    return reason if type(reason) is str else type(reason).__name__


def keys_of(
    module: Module,
    namespace: Mapping[str, Any],
    name: str,
    args: Mapping[str, Any],
    *,
    follow_up: bool = False,
) -> DeclaredKeys | None:
    """The keys of a call, reserved ones included; None without a key function.

    A procedure that nests others and has no key function touches what they touch.
    Raises ValueError: a key function fails, or gives something else.
    """
    graph = module.graph
    asked = [name]
    if name not in module.keyed:
        asked = list(graph.nested.get(name, ())) if graph is not None else []
    if not asked or not module.keyed.issuperset(asked):
        return None
    keys: dict[str, None] = {}
    reads: dict[str, None] = {}
    ranges: dict[Range, None] = {}
    for each in asked:
        own = _told(module.name, namespace[KEYS_OF + each], each, args)
        keys |= dict.fromkeys(own.keys)
        reads |= dict.fromkeys(own.reads)
        ranges |= dict.fromkeys(own.ranges)
    if graph is not None:
        keys |= dict.fromkeys(graph.reserved(module.name, name, follow_up=follow_up))
    return DeclaredKeys(list(keys), list(reads), list(ranges))


def _told(
    module: str, function: Callable[..., Any], name: str, args: Mapping[str, Any]
) -> DeclaredKeys:
    try:
        return declared(function(dict(args)))
    except (Exception, Stop, Abort) as error:
        if isinstance(error, Exception) and not is_of_language(error):
            raise
        what = f"the key function of {module}.{name} failed with {type(error).__name__}"
        raise ValueError(f"{what}; it gets the arguments as a dict, and gives keys") from error


# What is inserted is *staged* until a whole slide has come; then the window slides at once: staged
# items become visible, old ones go. By number: a slide is so many items. By time: slides end at
# multiples of the slide in commit time, and the window shows what was inserted in the size before.
class SlidingWindow:
    """A window within one call."""

    __slots__ = ("active", "before", "declared", "end", "now", "slid", "staged")

    def __init__(self, declared: Window, before: bytes | None, now: int) -> None:
        """Continue from the value under the window's key; ``now``: commit time in ms."""
        self.declared = declared
        self.before = before
        self.now = now
        self.slid = False
        told: dict[str, Any] = {} if before is None else decode_value(before)
        known = ("end" in told) == declared.timed
        self.active: list[Any] = told["active"] if before is not None and known else []
        self.staged: list[Any] = told["staged"] if before is not None and known else []
        self.end: int = told.get("end", 0) if known else 0
        if declared.timed:
            self._advance()

    def _advance(self) -> None:
        """Slide to the last boundary that is not after now."""
        end = self.now - self.now % self.declared.slide
        if end <= self.end:
            return
        came = [pair for pair in self.staged if pair[0] < end]
        start = end - self.declared.size
        self.slid = bool(came) or any(pair[0] < start for pair in self.active)
        self.active = [pair for pair in [*self.active, *came] if pair[0] >= start]
        self.staged = self.staged[len(came) :]
        self.end = end

    def insert(self, item: Any) -> bool:
        """Stage an item; whether the window slid by that."""
        if self.declared.timed:
            self.staged.append([self.now, item])
            return False
        self.staged.append(item)
        if len(self.staged) < self.declared.slide:
            return False
        self.active = [*self.active, *self.staged][-self.declared.size :]
        self.staged = []
        self.slid = True
        return True

    def items(self) -> list[Any]:
        """Return the visible items, the oldest first."""
        return [pair[1] for pair in self.active] if self.declared.timed else list(self.active)

    def value(self) -> bytes:
        """The canonical value to be stored."""
        told: dict[str, Any] = {"active": self.active, "staged": self.staged}
        if self.declared.timed:
            told["end"] = self.end
        return canonical(told)


def _insert(machine: Machine, window: SlidingWindow, item: Any) -> bool:
    if len(window.active) + len(window.staged) >= WINDOW_ITEMS_MAX:
        machine.exceed("window")
    machine.charge(len(window.active) // 16 + 1)
    return window.insert(decode_value(plain_bytes(machine, item)))


def _items(machine: Machine, window: SlidingWindow) -> list[Any]:
    return decode_value(plain_bytes(machine, window.items()))  # type: ignore[no-any-return]


def _slid(machine: Machine, window: SlidingWindow) -> bool:
    machine.tick()
    return window.slid


def stored(machine: Machine, window: SlidingWindow, key: str) -> bytes:
    """The value of a window at the end of a call, charged.
    Raises TypeError: it has an item that is nested too deeply to be in it.
    """
    try:
        data = window.value()
    except ValueRejected as fault:
        raise unfit(fault) from None
    machine.charge(len(data) // 32 + 1)
    if len(data) > VALUE_BYTES_MAX:
        machine.end(errors.VALUE_TOO_LARGE, key)
    return data


METHODS[SlidingWindow] = {"insert": _insert, "items": _items, "slid": _slid}
