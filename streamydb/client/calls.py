"""Calls of stored procedures: the client finds out which keys they touch before the append.

The log needs the keys of a call in advance. They are given, or a key function computes them from
the arguments, or *reconnaissance* finds them: the procedure is run on a snapshot, in the client,
and what it touches is declared (Thomson et al., Calvin, SIGMOD 2012, section 3.2.1: optimistic lock
location prediction). If the keys are others by the time of execution, the call aborts with
`undeclared-key`, writes nothing, and is tried again from a newer snapshot. So only a change of the
key set costs a repetition, not any change of a value; with `pinned`, every value must still have
the version that was seen.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import UNSET

from streamydb import errors
from streamydb import records as r
from streamydb.client.core import execute
from streamydb.client.errors import RequestError
from streamydb.client.problems import (
    AbortedError,
    CheckFailedError,
    ConflictError,
    InvalidParameterError,
    SnapshotGoneError,
    refusal,
)
from streamydb.client.reads import RangeScan, read, scan_page
from streamydb.client.requests import Flow, Freshness, Pause, Stored
from streamydb.client.session import Session, perform
from streamydb.client.transactions import Committed, ReadItem, as_list, prepare
from streamydb.errors import ValueRejected
from streamydb.local.module_folder import load_file
from streamydb.procedures import Workflow, key_function
from streamydb.procedures.core import declared_keys, run, version_of
from streamydb.procedures.declare import Abort, DeclaredKeys, declared, range_of
from streamydb.procedures.modules import Module
from streamydb.procedures.view import Stamp
from streamydb.records.ranges import Bounds, Range, ScanRange
from streamydb.records.updates import apply_update

_TOGETHER: Final = 256  # keys that one run notes to be read


class ReadNeeded(BaseException):
    """Reconnaissance cannot go on: it needs a range that was not read yet, or many keys."""

    def __init__(self, what: Bounds | None = None) -> None:
        super().__init__(what)
        self.what = what


@dataclass(slots=True)
class Reconnaissance:
    """The host of a procedure under reconnaissance: it notes the keys and ranges that are touched.

    ``unknown``: keys that were not read yet. Without any, and no `ReadNeeded`, all is known.
    """

    seen: dict[str, Stored | None]
    scans: dict[Bounds, list[Stored]]
    touched: dict[str, bool] = field(default_factory=dict)
    ranges: dict[Bounds, None] = field(default_factory=dict)
    unknown: dict[str, None] = field(default_factory=dict)
    expires: bool = True
    weighs: bool = True

    def may(self, key: str, *, write: bool) -> bool:
        self.touched[key] = self.touched.get(key, False) or write
        return True

    def look(self, key: str) -> tuple[bytes | None, int]:
        if key not in self.seen:
            if len(self.unknown) == _TOGETHER:
                raise ReadNeeded
            self.unknown[key] = None
        stored = self.seen.get(key)
        return (None, 0) if stored is None else (bytes(stored.data), stored.version)

    def fetch(self, key: str, write: bool) -> bytes | None:  # noqa: FBT001 - as in `view.Host`
        self.may(key, write=write)
        return self.look(key)[0]

    def around(self, bounds: Bounds) -> Bounds:
        self.ranges[bounds] = None
        return bounds

    def entries(self, declared: Bounds) -> list[tuple[str, bytes]]:
        if declared[0] >= declared[1]:
            return []
        if declared not in self.scans:
            raise ReadNeeded(declared)
        return [(stored.key, bytes(stored.data)) for stored in self.scans[declared]]

    def apply(self, update: r.Update, before: bytes | None) -> bytes | None:
        return apply_update(update, before, 0)


def read_needed(
    session: Session,
    timeout_s: float | None,
    host: Reconnaissance,
    what: Bounds | None,
    point: Freshness,
) -> Flow[None]:
    """Read the unknown keys at the snapshot; or a range, which is sure if there are none."""
    if what is None or host.unknown:
        first, *more = host.unknown
        try:
            reading = yield from read(session, [first, *more], point, timeout_s)
        except RequestError:
            if not more:
                raise
            reading = yield from read(session, [first], point, timeout_s)  # only this one is sure
        host.seen |= reading.entries
        return
    named = Range.of(what)
    start, end = (None if bound is UNSET else bound for bound in (named.start, named.end))
    scan = RangeScan(session, ScanRange(named.prefix or "", start, end), point, None)
    entries: list[Stored] = []
    while page := (yield from scan_page(scan, timeout_s)):
        entries += page
    host.scans[what] = entries


Procedure = str | Callable[..., Any]
"""`module.name`, or the function itself, imported from its file."""

# Each round finds a key or a range, and a transaction touches at most so many.
_GUESSED_ROUNDS_MAX = 10_000


@dataclass(slots=True)
class ProcedureCall:
    """A call as a client asks for it; see `Client.call`.

    ``keys`` None: find out. ``calls_max`` None: as the options have it. ``txn_id``: it is tried
    once only.
    """

    procedure: Procedure
    args: dict[str, Any]
    keys: Iterable[str] | None = None
    reads: Iterable[str] = ()
    ranges: Iterable[Range | Mapping[str, str] | str] = ()
    checks: Iterable[Mapping[str, Any]] = ()
    after: Iterable[ReadItem] = ()
    pinned: bool = False
    calls_max: int | None = None
    txn_id: str | None = None
    timeout_s: float | None = None

    @property
    def name(self) -> str:
        if isinstance(self.procedure, str):
            return self.procedure
        return f"{_file_of(self.procedure).stem}.{self.procedure.__name__}"


@dataclass(slots=True)
class _CallKeys:
    """The keys and ranges of a call, and checks that all is as reconnaissance saw it."""

    keys: list[str]
    reads: list[str]
    ranges: list[Range]
    pins: list[dict[str, Any]] = field(default_factory=list)


def call(session: Session, request: ProcedureCall) -> Flow[Committed]:
    """Call a procedure.
    Raises AbortedError: it was executed and wrote nothing; `reason` says why; ConflictError: its
    keys were others in every attempt; InvalidParameterError: its keys are not given, and its code
    is not here to find them, or its key function fails; ModuleMissing: the same, with a folder that
    lacks the deployed version; OutcomeUnknownError, ClientError: as `execute`.
    """
    call_keys = _declared_keys(request)
    if call_keys is not None:
        return (yield from _execute_call(session, request, call_keys))
    calls_max = request.calls_max or session.options.conflicts_max
    retry = session.retry()
    freshness = session.freshness()
    conflict: AbortedError | None = None
    for number in range(1, calls_max + 1):
        try:
            call_keys = yield from _reconnoitre(session, request, freshness)
            return (yield from _execute_call(session, request, call_keys))
        except SnapshotGoneError:
            pass
        except AbortedError as error:
            pinned = request.pinned and isinstance(error, CheckFailedError)
            if not (pinned or error.code == errors.UNDECLARED_KEY):
                raise
            conflict = error
        freshness = session.floor(session.seq)
        if number < calls_max:
            yield from perform(Pause(retry.pause_s()))
    members = {} if conflict is None else conflict.members
    raise ConflictError(
        f"The keys of {request.name} were others than on the snapshot in each of {calls_max} "
        "attempts; nothing was written. Give the keys, or allow more attempts (calls_max).",
        members=members,
    )


def _declared_keys(request: ProcedureCall) -> _CallKeys | None:
    if request.keys is not None:
        return _CallKeys(as_list(request.keys), as_list(request.reads), _more_ranges(request))
    function = None if isinstance(request.procedure, str) else key_function(request.procedure)
    if function is None:
        return None
    try:
        declaration = declared(function(dict(request.args)))
    except (Exception, Abort) as error:
        raise InvalidParameterError(
            f"The key function of {request.name} failed with {type(error).__name__}: {error}. It "
            "gets the arguments as a dict, and gives keys."
        ) from error
    return _with_extra_keys(declaration, request, _reserved(request.procedure))


def _with_extra_keys(
    declaration: DeclaredKeys, request: ProcedureCall, reserved: Iterable[str] = ()
) -> _CallKeys:
    """The keys as a key function tells them, and those that are given besides."""
    return _CallKeys(
        [*declaration.keys, *reserved],
        [*declaration.reads, *request.reads],
        [*declaration.ranges, *_more_ranges(request)],
    )


def _more_ranges(request: ProcedureCall) -> list[Range]:
    return [range_of(each) for each in request.ranges]


def _reserved(function: Procedure) -> list[str]:
    """The reserved keys that the workflow of a function's module takes for a call of it."""
    names = getattr(function, "__globals__", {})
    if isinstance(function, str) or not any(isinstance(n, Workflow) for n in names.values()):
        return []
    module = load_file(_file_of(function))[0]
    graph = module.graph
    return [] if graph is None else graph.reserved(module.name, function.__name__)


def _execute_call(
    session: Session, request: ProcedureCall, call_keys: _CallKeys
) -> Flow[Committed]:
    ranges = [msgspec.to_builtins(each) for each in dict.fromkeys(call_keys.ranges)]
    parts = {"keys": call_keys.keys, "reads": call_keys.reads, "ranges": ranges}
    fields = {"procedure": request.name, "args": request.args}
    txn = prepare(
        request.txn_id or session.new_id(),
        checks=[*request.checks, *(call_keys.pins if request.pinned else [])],
        reads=request.after,
        call={**fields, **{name: keys for name, keys in parts.items() if keys}},
        deadline_ms=session.deadline_ms(request.timeout_s),
    )
    sent = execute(
        session, txn, request.timeout_s, fresh=request.txn_id is None,
        dated=partial(session.deadline_ms, request.timeout_s),
    )  # fmt: skip
    return (yield from sent)


def _reconnoitre(session: Session, request: ProcedureCall, freshness: Freshness) -> Flow[_CallKeys]:
    """Run the procedure on a snapshot, read the keys that it lacks, and repeat until it has all."""
    try:
        args = r.canonical(request.args)
    except ValueRejected as fault:
        raise refusal(fault.code, str(fault)) from None
    host = Reconnaissance({}, {})
    name = request.name.partition(".")[2]
    module, point = yield from _module(session, request, freshness)
    try:
        declaration = declared_keys(module, name, request.args)
    except ValueError as error:
        raise InvalidParameterError(f"Give other arguments, or the keys: {error}.") from error
    if declaration is not None:
        return _with_extra_keys(declaration, request)
    for _ in range(_GUESSED_ROUNDS_MAX):
        host = Reconnaissance(host.seen, host.scans)
        needed = None
        try:
            if name in module.procedures:
                run(module, name, args, host, Stamp(point.at or 0, 0, ""))
        except ReadNeeded as unread:
            needed = unread.what
        if needed is None and not host.unknown:
            break
        yield from read_needed(session, request.timeout_s, host, needed, point)
    keys = [key for key, written in host.touched.items() if written]
    reads = [key for key, written in host.touched.items() if not written]
    ranges = [Range.of(bounds) for bounds in host.ranges]
    call_keys = _CallKeys(keys, [*reads, *request.reads], [*ranges, *_more_ranges(request)])
    seq = point.at or 0
    seen = [(key, host.seen[key]) for key in host.touched if key in host.seen]
    call_keys.pins = [
        {"key": key, "version": 0 if stored is None else stored.version} for key, stored in seen
    ] + [
        {"range": msgspec.to_builtins(Range.of(bounds)), "count": len(entries), "version_le": seq}
        for bounds, entries in host.scans.items()
    ]
    return call_keys


def _module(
    session: Session, request: ProcedureCall, freshness: Freshness
) -> Flow[tuple[Module, Freshness]]:
    owner = request.name.partition(".")[0]
    key = r.module_key(owner)
    reading = yield from read(session, [key], freshness, request.timeout_s)
    point = Freshness(at=reading.seq)
    if not isinstance(request.procedure, str):
        return load_file(_file_of(request.procedure))[0], point
    stored = reading.entries[key]
    if session.options.modules is None:
        raise InvalidParameterError(
            f"The keys of {request.name} are not given. Give them (keys=[...]), or the function "
            "itself instead of its name, or connect with procedures=FOLDER."
        )
    if stored is None:
        raise InvalidParameterError(f"The module {owner} is not deployed.")
    return session.options.modules.find(owner, version_of(bytes(stored.data)).hash), point


def _file_of(function: Callable[..., Any]) -> Path:
    try:
        return Path(inspect.getsourcefile(function) or "")
    except TypeError:
        raise InvalidParameterError("A procedure is a name or a function of a module.") from None
