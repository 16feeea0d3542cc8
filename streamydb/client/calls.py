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
from typing import Any

import msgspec

from streamydb import errors
from streamydb import records as r
from streamydb.client.aborts import AbortedError, CheckFailedError, ConflictError
from streamydb.client.core import execute
from streamydb.client.problems import InvalidParameterError, SnapshotGoneError, refusal
from streamydb.client.reads import listed, read
from streamydb.client.requests import Flow, Freshness, Pause, perform
from streamydb.client.scout import Scout, Unread, look, pins
from streamydb.client.session import Session
from streamydb.client.transactions import Committed, ReadItem, prepare
from streamydb.errors import ValueRejected
from streamydb.local.module_folder import load_file
from streamydb.procedures import Workflow, key_function
from streamydb.procedures.core import declared_keys, run, version_of
from streamydb.procedures.declare import Abort, DeclaredKeys, declared, range_of
from streamydb.procedures.modules import Module
from streamydb.procedures.view import Stamp
from streamydb.records.ranges import Range

__all__ = ["Procedure", "Wanted", "call"]

Procedure = str | Callable[..., Any]
"""`module.name`, or the function itself, imported from its file."""

# Each round finds a key or a range, and a transaction touches at most so many.
_GUESSED_ROUNDS_MAX = 10_000


@dataclass(slots=True)
class Wanted:
    """A call as a client asks for it.

    Attributes:
        procedure: which one.
        args: its arguments.
        keys: what it may write; None: find out.
        reads: what it may read besides.
        ranges: what it may scan.
        checks: conditions on the state before.
        after: keys whose values the verdict gives.
        pinned: whether all that reconnaissance read must be unchanged.
        calls_max: how often it is tried; None: as the client's options have it.
        txn_id: its id, if it is tried once only.
        timeout_s: how long each try may last.
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
        """The procedure's name on the wire."""
        if isinstance(self.procedure, str):
            return self.procedure
        return f"{_file_of(self.procedure).stem}.{self.procedure.__name__}"


@dataclass(slots=True)
class _Found:
    """The keys and ranges of a call, and checks that all is as reconnaissance saw it."""

    keys: list[str]
    reads: list[str]
    ranges: list[Range]
    pins: list[dict[str, Any]] = field(default_factory=list)


def call(session: Session, wanted: Wanted) -> Flow[Committed]:
    """Call a procedure.

    Raises:
        AbortedError: it was executed and wrote nothing; `reason` says why.
        ConflictError: its keys were others in every attempt.
        InvalidParameterError: its keys are not given, and its code is not here to find them, or
            its key function fails.
        ModuleMissing: the same, with a folder that lacks the deployed version.
        OutcomeUnknownError, ClientError: as `execute`.
    """
    found = _declared(wanted)
    if found is not None:
        return (yield from _sent(session, wanted, found))
    most = wanted.calls_max or session.options.conflicts_max
    retry = session.retry()
    freshness = session.freshness()
    conflict: AbortedError | None = None
    for number in range(1, most + 1):
        try:
            found = yield from _scouted(session, wanted, freshness)
            return (yield from _sent(session, wanted, found))
        except SnapshotGoneError:
            pass
        except AbortedError as error:
            if not _may_be_a_conflict(error, wanted):
                raise
            conflict = error
        freshness = session.floor(session.seq)
        if number < most:
            yield from perform(Pause(retry.pause_s()))
    raise _given_up(wanted.name, most, conflict)


def _may_be_a_conflict(error: AbortedError, wanted: Wanted) -> bool:
    pinned = wanted.pinned and isinstance(error, CheckFailedError)
    return pinned or error.code == errors.UNDECLARED_KEY


def _given_up(name: str, most: int, conflict: AbortedError | None) -> ConflictError:
    members = {} if conflict is None else conflict.members
    return ConflictError(
        f"The keys of {name} were others than on the snapshot in each of {most} attempts; nothing "
        "was written. Give the keys, or allow more attempts (calls_max).",
        members=members,
    )


def _declared(wanted: Wanted) -> _Found | None:
    """The keys as they are given, or as the function's key function has them."""
    if wanted.keys is not None:
        return _Found(listed(wanted.keys), listed(wanted.reads), _more_ranges(wanted))
    function = None if isinstance(wanted.procedure, str) else key_function(wanted.procedure)
    if function is None:
        return None
    try:
        told = declared(function(dict(wanted.args)))
    except (Exception, Abort) as error:
        raise InvalidParameterError(
            f"The key function of {wanted.name} failed with {type(error).__name__}: {error}. It "
            "gets the arguments as a dict, and gives keys."
        ) from error
    return _as_told(told, wanted, _reserved(wanted.procedure))


def _as_told(told: DeclaredKeys, wanted: Wanted, reserved: Iterable[str] = ()) -> _Found:
    """The keys as a key function tells them, and those that are given besides."""
    return _Found(
        [*told.keys, *reserved], [*told.reads, *wanted.reads], [*told.ranges, *_more_ranges(wanted)]
    )


def _more_ranges(wanted: Wanted) -> list[Range]:
    return [range_of(each) for each in wanted.ranges]


def _reserved(function: Procedure) -> list[str]:
    """The reserved keys that the workflow of a function's module takes for a call of it."""
    names = getattr(function, "__globals__", {})
    if isinstance(function, str) or not any(isinstance(n, Workflow) for n in names.values()):
        return []
    module = load_file(_file_of(function))[0]
    graph = module.graph
    return [] if graph is None else graph.reserved(module.name, function.__name__)


def _sent(session: Session, wanted: Wanted, found: _Found) -> Flow[Committed]:
    """Execute the call with these keys."""
    ranges = [msgspec.to_builtins(each) for each in dict.fromkeys(found.ranges)]
    parts = {"keys": found.keys, "reads": found.reads, "ranges": ranges}
    fields = {"procedure": wanted.name, "args": wanted.args}
    txn = prepare(
        wanted.txn_id or session.new_id(),
        checks=[*wanted.checks, *(found.pins if wanted.pinned else [])],
        reads=wanted.after,
        call={**fields, **{name: keys for name, keys in parts.items() if keys}},
        deadline_ms=session.deadline_ms(wanted.timeout_s),
    )
    sent = execute(
        session, txn, wanted.timeout_s, fresh=wanted.txn_id is None,
        dated=partial(session.deadline_ms, wanted.timeout_s),
    )  # fmt: skip
    return (yield from sent)


def _scouted(session: Session, wanted: Wanted, freshness: Freshness) -> Flow[_Found]:
    """Run the procedure on a snapshot; read the keys it lacks and run it again,
    until it has all.
    """
    try:
        args = r.canonical(wanted.args)
    except ValueRejected as fault:
        raise refusal(fault.code, str(fault)) from None
    scout = Scout({}, {})
    name = wanted.name.partition(".")[2]
    module, place = yield from _module(session, wanted, freshness)
    try:
        told = declared_keys(module, name, wanted.args)
    except ValueError as error:
        raise InvalidParameterError(f"Give other arguments, or the keys: {error}.") from error
    if told is not None:
        return _as_told(told, wanted)
    for _ in range(_GUESSED_ROUNDS_MAX):
        scout = Scout(scout.seen, scout.scans)
        needed = None
        try:
            if name in module.procedures:
                run(module, name, args, scout, Stamp(place.at or 0, 0, ""))
        except Unread as unread:
            needed = unread.what
        if needed is None and not scout.unknown:
            break
        yield from look(session, wanted.timeout_s, scout, needed, place)
    keys = [key for key, written in scout.touched.items() if written]
    reads = [key for key, written in scout.touched.items() if not written]
    ranges = [Range.of(bounds) for bounds in scout.ranges]
    found = _Found(keys, [*reads, *wanted.reads], [*ranges, *_more_ranges(wanted)])
    found.pins = pins(scout, place.at or 0)
    return found


def _module(
    session: Session, wanted: Wanted, freshness: Freshness
) -> Flow[tuple[Module, Freshness]]:
    """The code to run, and the snapshot to run it on."""
    owner = wanted.name.partition(".")[0]
    key = r.module_key(owner)
    reading = yield from read(session, [key], freshness, wanted.timeout_s)
    place = Freshness(at=reading.seq)
    if not isinstance(wanted.procedure, str):
        return load_file(_file_of(wanted.procedure))[0], place
    stored = reading.entries[key]
    if session.options.modules is None:
        raise InvalidParameterError(
            f"The keys of {wanted.name} are not given. Give them (keys=[...]), or the function "
            "itself instead of its name, or connect with procedures=FOLDER."
        )
    if stored is None:
        raise InvalidParameterError(f"The module {owner} is not deployed.")
    return session.options.modules.find(owner, version_of(stored.data).hash), place


def _file_of(function: Callable[..., Any]) -> Path:
    """The file that a function was imported from."""
    try:
        return Path(inspect.getsourcefile(function) or "")
    except TypeError:
        raise InvalidParameterError("A procedure is a name or a function of a module.") from None
