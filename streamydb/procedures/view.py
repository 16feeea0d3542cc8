"""`db`: a procedure's view of the database.

A view is made for one call. It reads the declared keys through its host, keeps what is written, and
shows it to later reads. The host gives values and applies updates, so the engine, the oracle and a
client's reconnaissance each bring their own.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from streamydb import errors
from streamydb import records as r
from streamydb.errors import ValueRejected
from streamydb.limits import INTEGER_MAX, INTEGER_MIN, TTL_MS_MAX, VALUE_BYTES_MAX
from streamydb.procedures.call_flow import Flow
from streamydb.procedures.chance import Random
from streamydb.procedures.data import canonical_of, decoded, name_of, unfit, value_of
from streamydb.procedures.machine import Machine
from streamydb.procedures.meter import TEXT_PER_STEP
from streamydb.procedures.methods import ATTRIBUTES, METHODS
from streamydb.procedures.scans import DeclaredRanges, named_bounds
from streamydb.procedures.windows import SlidingWindow
from streamydb.records.expiry import Expiring
from streamydb.records.names import FLOWS_PREFIX, RESERVED, WINDOWS_PREFIX
from streamydb.records.ranges import Bounds, Range
from streamydb.records.updates import UpdateFailed

__all__ = ["UNDECLARED", "Declared", "Host", "ProcedureView", "Stamp"]

UNDECLARED: Final = object()
"""Stands for the value of a key that the call has not declared."""

_PRIVATE: Final = (FLOWS_PREFIX, WINDOWS_PREFIX)
_BEHIND_RESERVED: Final = chr(ord(RESERVED) + 1)
"""Texts that begin with the mark of reserved keys come before it."""
_NOT_WRITTEN: Final = object()
_NOT_GIVEN: Final = object()


class Stamp(NamedTuple):
    """The place of a transaction: its seq, its commit timestamp in ms, its id."""

    seq: int
    ts_ms: int
    id: str


class Host(Protocol):
    """Stands behind a view."""

    def look(self, key: str) -> tuple[bytes | None, int]:
        """The canonical value (None: absent) and the version of a key before the transaction."""

    def apply(self, update: r.Update, before: bytes | None) -> bytes | None:
        """The value of a key after an update of ``before``.

        Raises:
            UpdateFailed: it cannot be made.

        """

    def may(self, key: str, *, write: bool) -> bool:
        """Return True if the call has declared the key."""

    def fetch(self, key: str, write: bool) -> Any:  # noqa: FBT001 - called for every key
        """As `look`, the value alone; `UNDECLARED` where `may` says so."""

    def around(self, bounds: Bounds) -> Bounds | None:
        """Return a range that the call has declared, and that has all keys of another one."""

    def entries(self, declared: Bounds) -> Sequence[tuple[str, bytes]]:
        """The keys of a declared range and their values before the transaction, in order."""


class ProcedureView:
    """The state of one call."""

    __slots__ = (
        "chance", "flow", "host", "id", "machine", "now", "scanned", "seq", "writes"
    )  # fmt: skip

    def __init__(
        self, machine: Machine, host: Host, place: Stamp, flow: Flow | None = None
    ) -> None:
        """Show what ``host`` has, at ``place``; ``flow``: the call's part in a workflow."""
        self.flow = flow
        self.machine = machine
        self.host = host
        self.seq, self.now, self.id = place
        self.chance: Random | None = None
        self.writes: dict[str, bytes | None] = {}
        self.scanned: dict[Bounds, tuple[list[bytes], Sequence[tuple[str, bytes]]]] = {}

    @property
    def batch(self) -> int | None:
        """The batch that a follow-up belongs to: the seq with which it entered the workflow."""
        return None if self.flow is None or self.flow.batch is None else self.flow.batch.id

    @property
    def random(self) -> Random:
        """The transaction's generator, made when it is asked for."""
        if self.chance is None:
            self.chance = Random(self.seq)
        return self.chance

    def current(self, key: Any, *, write: bool = False) -> bytes | None:
        """The value of a declared key, own writes included."""
        if type(key) is not str:
            raise TypeError("a key is a text")
        found: Any = self.writes.get(key, _NOT_WRITTEN)
        return self.stored(key, write) if found is _NOT_WRITTEN else found

    def stored(self, key: str, write: bool) -> bytes | None:  # noqa: FBT001 - called for every key
        """The value, before the transaction, of a key that it has not written."""
        if key < _BEHIND_RESERVED and key.startswith(_PRIVATE):
            self.machine.end(errors.RESERVED_KEY, key)
        found: bytes | None = self.host.fetch(key, write)
        if found is UNDECLARED:
            self.machine.end(errors.UNDECLARED_KEY, key)
        return found

    def within(self, prefix: Any, start: Any, end: Any) -> list[tuple[str, bytes]]:
        """The keys and values of a declared range, own writes included, in the keys' order.

        Keys that no procedure may read are left out.
        """
        for text in (prefix, start, end):
            if type(text) is str:
                self.machine.charge(len(text) // TEXT_PER_STEP)
        bounds = named_bounds(prefix, start, end)
        declared = None if bounds is None else self.host.around(bounds)
        if bounds is None or declared is None:
            self.machine.end(errors.UNDECLARED_KEY, start if prefix is None else prefix)
        if declared not in self.scanned:
            entries = self.host.entries(declared)
            self.machine.charge(len(entries) + 1)
            self.scanned[declared] = [key.encode() for key, _ in entries], entries
        names, entries = self.scanned[declared]
        first, last = (bisect_left(names, bound) for bound in bounds)
        self.machine.charge(max(last - first, 0) + len(self.writes) // 8 + 1)
        found = dict(entries[first:last])
        own = [key for key in self.writes if bounds[0] <= key.encode() < bounds[1]]
        for key in own:
            value = self.writes[key]
            if value is None:
                found.pop(key, None)
            else:
                found[key] = value
        order = sorted(found) if own else found
        return [(key, found[key]) for key in order if not key.startswith(_PRIVATE)]

    def update(self, update: r.Update) -> bytes | None:
        """Make an update and return the new value; one that cannot be made ends the call."""
        before = self.current(update.key, write=True)
        try:
            after = self.host.apply(update, before)
        except UpdateFailed as failed:
            self.machine.end(failed.code, update.key)
        self.writes[update.key] = after
        return after


def _get(machine: Machine, view: ProcedureView, key: str, default: Any = None) -> Any:
    return decoded(machine, view.current(key), default)


def _exists(machine: Machine, view: ProcedureView, key: str) -> bool:
    machine.tick()
    return view.current(key) is not None


def _version(machine: Machine, view: ProcedureView, key: str) -> int:
    machine.tick()
    view.current(key)
    return view.host.look(key)[1]


def _scan(
    machine: Machine, view: ProcedureView, prefix: Any = None, *, start: Any = None, end: Any = None
) -> list[tuple[str, Any]]:
    found = view.within(prefix, start, end)
    return [(key, decoded(machine, value)) for key, value in found]


def _count(
    _machine: Machine,
    view: ProcedureView,
    prefix: Any = None,
    *,
    start: Any = None,
    end: Any = None,
) -> int:
    return len(view.within(prefix, start, end))


def _ttl(ttl_ms: Any) -> int | msgspec.UnsetType:
    """A time to live as updates have it; for good where it is None."""
    if ttl_ms is _NOT_GIVEN or ttl_ms is None:
        return msgspec.UNSET
    if type(ttl_ms) is not int:
        raise TypeError("ttl_ms is a number of milliseconds")
    if not 1 <= ttl_ms <= TTL_MS_MAX:
        raise ValueError(f"ttl_ms is 1 to {TTL_MS_MAX}")
    return ttl_ms


def _put(
    machine: Machine, view: ProcedureView, key: str, value: Any, *, ttl_ms: Any = _NOT_GIVEN
) -> None:
    ttl = _ttl(ttl_ms)
    data = canonical_of(machine, value)
    if value is None:
        raise ValueError("null cannot be stored; use delete")
    view.current(key, write=True)
    if len(data) > VALUE_BYTES_MAX:
        machine.end(errors.VALUE_TOO_LARGE, key)
    if ttl is msgspec.UNSET:  # as the update leaves it, whatever was there
        view.writes[key] = data
    else:
        view.update(r.Put(key, data, ttl))


def _delete(machine: Machine, view: ProcedureView, key: str) -> None:
    machine.tick()
    view.current(key, write=True)
    view.update(r.Delete(key))


def _add(
    machine: Machine,
    view: ProcedureView,
    key: str,
    by: Any = 1,
    *,
    min: Any = None,  # noqa: A002 - the name on the wire
    max: Any = None,  # noqa: A002 - the name on the wire
) -> Any:
    if type(by) is int and min is max is None and INTEGER_MIN <= by <= INTEGER_MAX:
        machine.charge(2)
        before = view.current(key, write=True)
        old = 0 if before is None else _integer_in(before)
        if old is not None and INTEGER_MIN <= old + by <= INTEGER_MAX:
            total = old + by
            view.writes[key] = b"%d" % total
            machine.charge(1)  # as for a value that is read
            return total
        return decoded(machine, view.update(r.Add(key, by)))
    update = r.Add(key, _number(machine, by))
    if min is not None:
        update.min = _number(machine, min)
    if max is not None:
        update.max = _number(machine, max)
    return decoded(machine, view.update(update))


def _integer_in(data: bytes) -> int | None:
    """The integer that a value is; None if it is none, or ends."""
    if type(data) is Expiring or not data[-1:].isdigit():
        return None
    value = value_of(data)
    return value if type(value) is int else None


def _max(machine: Machine, view: ProcedureView, key: str, value: Any) -> Any:
    return decoded(machine, view.update(r.Max(key, _number(machine, value))))


def _min(machine: Machine, view: ProcedureView, key: str, value: Any) -> Any:
    return decoded(machine, view.update(r.Min(key, _number(machine, value))))


def _append(
    machine: Machine, view: ProcedureView, key: str, value: Any, *, ttl_ms: Any = _NOT_GIVEN
) -> None:
    ttl = _ttl(ttl_ms)
    data = canonical_of(machine, value)
    before = view.current(key, write=True)
    machine.charge(len(before or b"") // 64 + 1)
    view.update(r.Append(key, data, ttl))


def _touch(machine: Machine, view: ProcedureView, key: str, *, ttl_ms: Any = _NOT_GIVEN) -> None:
    machine.tick()
    view.update(r.Touch(key, _ttl(ttl_ms)))


def _next_id(machine: Machine, view: ProcedureView, key: str) -> Any:
    return decoded(machine, view.update(r.NextId(key)))


def _number(machine: Machine, value: Any) -> Any:
    """A number in canonical form."""
    machine.charge(2)
    if type(value) not in (int, float):
        raise TypeError(f"a {type(value).__name__} is no number")
    try:
        return r.canonical_number(value)
    except ValueRejected as fault:
        raise unfit(fault) from None


def _emit(machine: Machine, view: ProcedureView, stream: str, record: Any) -> None:
    data = canonical_of(machine, record)
    if view.flow is None:
        machine.end(errors.UNKNOWN_STREAM, name_of(machine, stream))
    view.flow.emit(machine, view.host, stream, data)


def _window(machine: Machine, view: ProcedureView, name: str) -> SlidingWindow:
    machine.tick()
    if view.flow is None:
        machine.end(errors.NOT_THE_OWNER, name_of(machine, name))
    return view.flow.window(machine, view.host, name, view.now)


def _call(machine: Machine, view: ProcedureView, name: str, /, **args: Any) -> Any:
    machine.walk(args)
    if view.flow is None:
        machine.end(errors.UNKNOWN_PROCEDURE, name_of(machine, name))
    return view.flow.call(machine, view, name, args)


_METHODS: Final[dict[str, Callable[..., Any]]] = {
    "get": _get, "exists": _exists, "version": _version, "put": _put, "delete": _delete,
    "scan": _scan, "count": _count, "touch": _touch,
    "emit": _emit, "window": _window, "call": _call,
    "add": _add, "max": _max, "min": _min, "append": _append, "next_id": _next_id,
}  # fmt: skip
METHODS[ProcedureView] = _METHODS
ATTRIBUTES[ProcedureView] = frozenset({"batch", "id", "now", "random", "seq"})


class Declared:
    """The keys and ranges that a call declares; mix it into a host."""

    def __init__(
        self, keys: Collection[str], reads: Collection[str], ranges: Collection[Range] = ()
    ) -> None:
        """It may write ``keys``, read both, and scan ``ranges``."""
        self._keys = frozenset(keys)
        self._reads = frozenset(reads)
        self._ranges = DeclaredRanges(ranges)

    def around(self, bounds: Bounds) -> Bounds | None:
        """Return a range that the call has declared, and that has all keys of another one."""
        return self._ranges.around(bounds)

    def may(self, key: str, *, write: bool) -> bool:
        """Return True if the call has declared the key."""
        return key in self._keys or (not write and key in self._reads)

    def look(self, key: str) -> tuple[bytes | None, int]:
        """The value and the version of a key; whoever mixes this in has them."""
        raise NotImplementedError

    def fetch(self, key: str, write: bool) -> Any:  # noqa: FBT001 - called for every key
        """The value of a key, or `UNDECLARED`."""
        return self.look(key)[0] if self.may(key, write=write) else UNDECLARED
