"""Records of what clients did and saw: one JSON object a line in a history file.

Times are those of one clock of one machine (`time.monotonic_ns`), which all clients must share: "a
returned before b was invoked" is what real-time order means to the checkers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec

from streamydb.records.formats import UNREADABLE

__all__ = [
    "Answer",
    "AppendOperation",
    "Consistency",
    "Delivered",
    "Delivery",
    "Get",
    "History",
    "HistoryError",
    "Line",
    "Operation",
    "Outcome",
    "RangeSeen",
    "ReadOperation",
    "Request",
    "ScanOperation",
    "Seen",
    "WatchOperation",
    "WriteOperation",
    "encode_line",
    "frozen",
    "read_history",
    "write_history",
]

Outcome: TypeAlias = Literal["ok", "failed", "unknown"]
"""ok: it was executed and answered; failed: it was not executed; unknown: one or the other."""

Consistency: TypeAlias = Literal["strong", "session", "snapshot"]


class HistoryError(ValueError):
    """A file is not a history; the message names the line."""


class Seen(msgspec.Struct, array_like=True, frozen=True):
    """A key as an answer shows it: its value (None: absent), its version if the answer tells.

    With a version, reads and scans also tell the commit time at which it ends (None: never).
    """

    value: Any = None
    version: int | None = None
    expires_ms: int | None = None


class WriteOperation(msgspec.Struct, tag="write", tag_field="kind", omit_defaults=True):
    """`PUT` or, with value None, `DELETE`.

    `expected` is what the client saw with the ETag that it sends as `If-Match`; its value None
    means `If-None-Match: *`.
    """

    id: str
    key: str
    value: Any = None
    expected: Seen | None = None


class RangeSeen(msgspec.Struct, array_like=True, frozen=True):
    """The keys that a client has seen in a range, all that there were at a seq."""

    seq: int
    seen: dict[str, Seen]


class AppendOperation(msgspec.Struct, tag="append", tag_field="kind", omit_defaults=True):
    """`POST /v1/transactions` that appends elements to lists, and reads after that.

    Ranges are named by their prefix.

    Attributes:
        reads: keys.
        removes: lists that it deletes; one that is not there keeps the whole from happening. Nobody
            appends to them but who makes them.
        touches: lists that it gives another end, by ``ttls``; one that is not there keeps the whole
            from happening.
        ttls: how long after its commit lists end that it makes or touches (ms).
        scans: ranges that it reads.
        unchanged: ranges that must be before it as the client saw them.
        most: how many keys ranges may have before it.
    """

    id: str
    appends: dict[str, list[Any]] = {}
    reads: list[str] = []
    removes: list[str] = []
    touches: list[str] = []
    ttls: dict[str, int] = {}
    scans: list[str] = []
    unchanged: dict[str, RangeSeen] = {}
    most: dict[str, int] = {}


class Get(msgspec.Struct, tag="get", tag_field="kind", omit_defaults=True):
    """`GET /v1/kv/{key}`."""

    key: str
    consistency: Consistency = "strong"
    min_version: int | None = None


class ReadOperation(msgspec.Struct, tag="read", tag_field="kind", omit_defaults=True):
    """`POST /v1/read`."""

    keys: list[str]
    consistency: Consistency = "strong"
    min_version: int | None = None


class ScanOperation(msgspec.Struct, tag="scan", tag_field="kind", omit_defaults=True):
    """`GET /v1/kv?prefix=`, all pages; the first with this consistency, then by cursor."""

    prefix: str
    limit: int = 100
    consistency: Consistency = "strong"
    min_version: int | None = None


Request: TypeAlias = WriteOperation | AppendOperation | Get | ReadOperation | ScanOperation


class Answer(msgspec.Struct, omit_defaults=True):
    """The answer that the client got.

    Attributes:
        status: of HTTP.
        committed: False if a condition kept the write from happening.
        seq: of the verdict, or of the snapshot that was read.
        ts_ms: the commit time, of a verdict.
        seen: what was read.
        pages: of a scan: the snapshot and the keys of each page, in order.
        ranges: of a transaction: what was read of each range.
    """

    status: int = 200
    committed: bool = True
    seq: int | None = None
    ts_ms: int | None = None
    seen: dict[str, Seen] = {}
    pages: list[tuple[int, list[str]]] = []
    ranges: dict[str, dict[str, Seen]] = {}


class Operation(msgspec.Struct, tag="operation", kw_only=True, omit_defaults=True):
    """One request of a client, its repetitions included.

    Attributes:
        client: does one operation at a time.
        session: within one, reads carry the largest seq that was seen as `min_version`.
        invoked_ns: before the first byte was sent.
        returned_ns: after the last byte of the answer; None when the outcome is unknown.
        attempts: how each attempt ended, the last one as well.
        index: its place in the history; given by the reader.
    """

    client: int
    session: int
    invoked_ns: int
    request: Request
    outcome: Outcome
    returned_ns: int | None = None
    answer: Answer | None = None
    attempts: list[str] = []
    index: int = -1

    @property
    def told(self) -> Answer | None:
        """The answer, if the operation was executed for sure."""
        return self.answer if self.outcome == "ok" else None

    @property
    def refused(self) -> bool:
        """True if it wrote nothing for sure."""
        told = self.told
        return self.outcome == "failed" or (told is not None and not told.committed)

    @property
    def is_current(self) -> bool:
        """True if it must show what had returned before: not so for reads that may be old."""
        request = self.request
        return (
            not isinstance(request, Get | ReadOperation | ScanOperation)
            or request.consistency == "strong"
        )


class WatchOperation(msgspec.Struct, tag="watch", kw_only=True):
    """A watcher begins: it follows the keys with a prefix from after a seq on."""

    watcher: int
    prefix: str
    since: int
    began_ns: int


class Delivered(msgspec.Struct, array_like=True):
    """One change: the key, its value before and after (None: absent)."""

    key: str
    before: Any
    after: Any


class Delivery(msgspec.Struct, tag="delivery", kw_only=True, omit_defaults=True):
    """The records that a watcher got under one event id: a whole transaction, or none.

    Attributes:
        seq: the event id.
        connection: how many times the watcher had connected.
    """

    watcher: int
    seq: int
    received_ns: int
    connection: int
    changes: list[Delivered] = []


Line: TypeAlias = Operation | WatchOperation | Delivery


@dataclass(slots=True)
class History:
    """A history in memory: operations by invocation, watches, deliveries by watcher in order."""

    operations: list[Operation] = field(default_factory=list)
    watches: list[WatchOperation] = field(default_factory=list)
    deliveries: dict[int, list[Delivery]] = field(default_factory=dict)

    @classmethod
    def of(cls, lines: Iterable[Line]) -> History:
        """Sort records into a history, and number its operations."""
        history = cls()
        for line in lines:
            if isinstance(line, Operation):
                history.operations.append(line)
            elif isinstance(line, WatchOperation):
                history.watches.append(line)
            else:
                history.deliveries.setdefault(line.watcher, []).append(line)
        history.operations.sort(key=lambda operation: operation.invoked_ns)
        for index, operation in enumerate(history.operations):
            operation.index = index
        return history


_DECODER: Final = msgspec.json.Decoder(Line)


def encode_line(line: Line) -> bytes:
    """Return a record as a line of JSON, its end included."""
    return msgspec.json.encode(line) + b"\n"


def write_history(path: Path, lines: Iterable[Line]) -> None:
    """Write a history file."""
    with path.open("wb") as file:
        file.writelines(map(encode_line, lines))


def read_history(paths: Iterable[Path]) -> History:
    """Read one history from the files of several processes.

    Raises:
        HistoryError: a line is none of a history. A last line without an end is left out: the
            process was killed while it wrote, and nobody was told that the operation had ended.
    """
    return History.of(line for path in paths for line in _lines(path))


def _lines(path: Path) -> Iterator[Line]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                yield _DECODER.decode(line)
            except UNREADABLE as error:
                raise HistoryError(f"{path}, line {number}: {error}") from None


def frozen(value: Any) -> str | None:
    """Return a JSON value as something to compare and to hash; None for an absent key."""
    return None if value is None else msgspec.json.encode(value, order="sorted").decode()
