"""The requests that the core makes of a transport, and the answers: plain data, no I/O.

A *flow* is a generator that yields requests, is sent their answers (or has their errors thrown into
it), and returns a result. A driver performs the requests; whether it blocks or awaits is its own
affair, as with the authentication flows of httpx.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

import msgspec

from streamydb.records import Result, decode_value
from streamydb.records.emission import Emitted
from streamydb.records.ranges import ALL_KEYS, ScanRange
from streamydb.records.table import Table

R = TypeVar("R")
_A = TypeVar("_A")

MARGIN_S: Final = 5.0  # how long an answer may be late before the connection counts as dead

Consistency: TypeAlias = Literal["strong", "session", "snapshot"]


@dataclass(frozen=True, slots=True)
class Freshness:
    """The state that a read shows: the one `at` a seq, or one that is new enough."""

    at: int | None = None
    consistency: Consistency | None = None
    min_version: int | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """A key at a snapshot.

    Attributes:
        key: the key.
        value: its value; None if it is absent.
        version: the seq of the transaction that wrote it; 0 if it is absent.
        ts_ms: the commit timestamp of that transaction.
        expires_ms: the commit time from which on the key is absent; None: it has no end.
    """

    key: str
    value: Any
    version: int
    ts_ms: int
    expires_ms: int | None = None

    @property
    def exists(self) -> bool:
        return self.version > 0


class Stored(msgspec.Struct, frozen=True):
    """A key that is there, its value as canonical JSON."""

    key: str
    data: msgspec.Raw = msgspec.field(name="value")
    version: int
    ts_ms: int
    expires_ms: int | None = None

    def entry(self) -> Entry:
        """Return the entry with its value decoded, anew at each call."""
        value = decode_value(bytes(self.data))
        return Entry(self.key, value, self.version, self.ts_ms, self.expires_ms)


@dataclass(frozen=True, slots=True)
class Reading:
    """The answer to `Read`; None for keys that are absent."""

    seq: int
    entries: dict[str, Stored | None]


@dataclass(frozen=True, slots=True)
class Page:
    """The answer to `Scan`; the cursor, opaque, tells where to go on."""

    seq: int
    entries: list[Stored]
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class Pending:
    """The answer to `Send` and `Ask` while there is no verdict.

    Attributes:
        position: partition:offset of the record whose verdict is waited for, if it is known.
        id: of that record, which may be a later attempt of the transaction; None: the one asked.
    """

    position: str | None
    id: str | None = None


Outcome: TypeAlias = Result | Pending


class Request(Generic[R]):
    """Something that a driver performs; R is its answer."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Read(Request[Reading]):
    """Read keys at one snapshot."""

    keys: tuple[str, ...]
    freshness: Freshness
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Scan(Request[Page]):
    """Read a page of a range of keys; with a cursor, `freshness` has the seq of the page before."""

    keys: ScanRange
    limit: int
    cursor: str | None
    freshness: Freshness
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Query(Request[Table]):
    """Run one SELECT over the keys with a prefix at one snapshot."""

    sql: str
    params: tuple[Any, ...]
    prefix: str
    freshness: Freshness
    timeout_s: float


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column of a result, with its type as DuckDB names it."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class StatementAnswer:
    """The result of a statement; ``changed``: rows written, None if it writes none."""

    columns: list[ResultColumn]
    rows: list[tuple[Any, ...]]
    changed: int | None


@dataclass(frozen=True, slots=True)
class SqlAnswer:
    """The answer to `SqlStatements`: a result for each."""

    seq: int
    results: list[StatementAnswer]


@dataclass(frozen=True, slots=True)
class SqlStatements(Request[SqlAnswer]):
    """Execute statements on tables as one transaction, once if it has an id."""

    tables: str
    statements: tuple[tuple[str, Any], ...]
    freshness: Freshness
    id: str | None
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Send(Request[Outcome]):
    """Append a transaction and wait for its verdict."""

    id: str
    payload: bytes
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Ask(Request[Outcome]):
    """Look for the verdict of a transaction that was sent before."""

    id: str
    position: str | None
    timeout_s: float


@dataclass(frozen=True, slots=True)
class EmissionsPage:
    """The answer to `Emissions`; ``more``: there are more by now, after the cursor."""

    records: list[Emitted]
    cursor: str
    more: bool


@dataclass(frozen=True, slots=True)
class Emissions(Request[EmissionsPage]):
    """Read a page of a stream, from its cursor or its first place on; wait for some records."""

    stream: str
    cursor: str | None
    after: str | None
    wait_s: float
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Pause(Request[None]):
    """Wait."""

    seconds: float


@dataclass(frozen=True, slots=True)
class ResumeAttempt(Request[_A]):
    """Call the function under `run` with a view of an attempt."""

    attempt: Any


@dataclass(frozen=True, slots=True)
class Selection:
    """The changes that a watch gives: of which keys, and of which values.

    Attributes:
        where: a check of the value after the change, and of its version, as JSON without a key.
        where_before: a check of the value before it.
    """

    keys: ScanRange = ALL_KEYS
    where: str | None = None
    where_before: str | None = None


@dataclass(frozen=True, slots=True)
class Open(Request[None]):
    """Open a stream of the changes after a seq; the one that was open is closed."""

    since: int
    wanted: Selection


@dataclass(frozen=True, slots=True)
class Receive(Request["list[Event]"]):
    """Wait for events of the open stream."""


@dataclass(frozen=True, slots=True)
class Change:
    """A write of a committed transaction.

    Attributes:
        key: the key that was written.
        op: c (created), u (updated) or d (deleted).
        before: its value before; None if it was absent.
        value: its value after; None if it was deleted.
        seq: the transaction, and the key's version from then on.
        number: which of the transaction's changes it is, from 1.
        ts_ms: the transaction's commit timestamp.
        txn_id: the transaction's id.
        expires_ms: the commit time from which on the key is absent; None: it has no end.
    """

    key: str
    op: Literal["c", "u", "d"]
    before: Any
    value: Any
    seq: int
    number: int
    ts_ms: int
    txn_id: str
    expires_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """All changes up to a seq have been given."""

    seq: int


@dataclass(frozen=True, slots=True)
class Alive:
    """Nothing has happened, and the connection works."""


Event: TypeAlias = Change | Progress | Alive
Flow: TypeAlias = Generator[Request[Any], Any, _A]


class Snapshot(Mapping[str, Any]):
    """The values of keys at one seq: a mapping, with None for keys that are absent.

    ``entries``: the same with versions, by key.
    """

    def __init__(self, reading: Reading) -> None:
        self.seq = reading.seq
        self.entries = {
            key: Entry(key, None, 0, 0) if stored is None else stored.entry()
            for key, stored in reading.entries.items()
        }

    def __getitem__(self, key: str) -> Any:
        return self.entries[key].value

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)
