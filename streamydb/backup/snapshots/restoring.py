"""Make a new database from a snapshot: transactions put its values into an empty log.

The transactions are a function of the snapshot: chunks of rows in the order of the keys, named by
the snapshot's seq, its digest and their number. So a load that was interrupted goes on where it
was: what is in the log already is recognised by its id, and sending it twice would be harmless.

Keys that only the database itself writes (deployed procedures, constraints and their index,
windows) are left out: what writes them is to be done again, in the new database.

A key with an end gets the time that it had left at the snapshot, from the commit time of its put
on. The end itself cannot be kept: a put says how long, and nobody knows its commit time before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from streamydb.backup.snapshots.manifest import SnapshotManifest, read_manifest
from streamydb.backup.snapshots.rows import SnapshotRow, read_rows
from streamydb.errors import REJECTED_CODES, SnapshotError
from streamydb.kafka import TopicNames
from streamydb.kafka.appender import TopicAppender
from streamydb.kafka.reader import TopicReader
from streamydb.records import Rejection, decode, decode_marker
from streamydb.records.formats import UNREADABLE
from streamydb.records.names import RESERVED

CHUNK_ROWS_MAX: Final = 500  # keys that one transaction puts
CHUNK_BYTES_MAX: Final = 500_000  # bytes of a transaction, unless one row alone is larger

_PUT_BYTES: Final = 72
"""Bytes of a put, besides its key, as it is written with its escapes, and its value."""

_RESERVED: Final = RESERVED.encode()


class Restored(NamedTuple):
    """The outcome of a load.

    Attributes:
        rows: keys that were put.
        transactions: that hold them.
        appended: of these, how many were not in the log yet.
        left_out: keys that only the database itself writes.
    """

    rows: int
    transactions: int
    appended: int
    left_out: int


def restore(
    folder: Path | str,
    connection: Mapping[str, str],
    database: str,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Restored:
    """Append the values of a snapshot to the log of a new database, or go on with it.

    ``database``: whose topics exist, and whose log has nothing else in it.
    Raises SnapshotError: the folder is no snapshot or a damaged one; the log has other records;
    Kafka did not take a record.
    """
    manifest = read_manifest(folder)
    numbers = _known(connection, database, manifest)
    for _ in chunks(folder, manifest):  # the whole of it, before anything is appended
        pass
    topic = TopicNames(database).transactions
    rows = transactions = appended = 0
    with TopicAppender(connection, topic, SnapshotError) as appender:
        for number, (count, payload) in enumerate(chunks(folder, manifest)):
            rows, transactions = rows + count, transactions + 1
            if number not in numbers:
                appender.append(payload)
                appended += 1
            progress(rows, manifest.rows)
    return Restored(rows, transactions, appended, manifest.rows - rows)


def chunks(folder: Path | str, manifest: SnapshotManifest) -> Iterator[tuple[int, bytes]]:
    """The transactions, each with its number of rows; keys that nobody may put are left out."""
    rows = (
        row
        for batch in read_rows(folder, manifest)
        for row in batch
        if not row.key.startswith(_RESERVED)
    )
    for number, group in enumerate(_groups(rows)):
        updates = [_put(row, manifest.ts_ms) for row in group]
        payload = msgspec.json.encode({"id": f"{_name(manifest)}{number}", "updates": updates})
        transaction = decode(payload)
        if isinstance(transaction, Rejection):
            raise SnapshotError(
                f"{folder}: the keys from {group[0].key.decode()!r} on cannot be put "
                f"({transaction.code}: {REJECTED_CODES.get(transaction.code, '')})"
            )
        yield len(group), payload


def _groups(rows: Iterable[SnapshotRow]) -> Iterator[list[SnapshotRow]]:
    group: list[SnapshotRow] = []
    size = 0
    for row in rows:
        needed = len(msgspec.json.encode(row.key.decode())) + len(row.value) + _PUT_BYTES
        if group and (len(group) == CHUNK_ROWS_MAX or size + needed > CHUNK_BYTES_MAX):
            yield group
            group, size = [], 0
        group.append(row)
        size += needed
    if group:
        yield group


def _put(row: SnapshotRow, now_ms: int) -> dict[str, Any]:
    """The update that puts a row; ``now_ms``: the commit timestamp of the snapshot."""
    put = {"op": "put", "key": row.key.decode(), "value": msgspec.Raw(row.value)}
    return put if row.expires_ms is None else {**put, "ttl_ms": row.expires_ms - now_ms}


def _name(manifest: SnapshotManifest) -> str:
    """Return how the ids of the transactions begin."""
    return f"restore:{manifest.database}:{manifest.seq}:{manifest.digest[:16]}:"


class _Id(msgspec.Struct):
    id: str


def _known(connection: Mapping[str, str], database: str, manifest: SnapshotManifest) -> set[int]:
    """The numbers of the transactions that are in the log; refuses a log with any others."""
    numbers: set[int] = set()
    name = _name(manifest)
    with TopicReader(connection, TopicNames(database).transactions) as reader:
        for record in reader.whole():
            value = record.value() or b""
            if decode_marker(value) is None:
                numbers.add(_number(value, name, database))
    return numbers


def _number(value: bytes, name: str, database: str) -> int:
    try:
        txn_id = msgspec.json.decode(value, type=_Id).id
    except UNREADABLE:
        txn_id = ""
    number = txn_id.removeprefix(name)
    if number == txn_id or not (number.isascii() and number.isdigit()):
        raise SnapshotError(
            f"the log of {database} has transactions that are not of this snapshot: a snapshot is "
            "loaded into a new database only. Choose another name (--database)"
        )
    return int(number)
