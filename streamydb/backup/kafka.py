"""The log and the digests of a database, as Kafka has them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from streamydb.backup.folder import BackupFolder
from streamydb.backup.manifest import BackupError
from streamydb.backup.pieces import Piece, Row
from streamydb.frames.digest import StateDigest
from streamydb.kafka import TopicNames, log_id
from streamydb.kafka.reader import SINGLE, Span, TopicReader
from streamydb.kafka.rulings import rulings
from streamydb.records.formats import decoded
from streamydb.records.rulings import Rulings

_decode_digest: Final = msgspec.json.Decoder(StateDigest).decode
_PREFETCH_KB: Final = "65536"
_LANE: Final = 16
_MASK: Final = (1 << 64) - 1


class ToldState(NamedTuple):
    """The digest of the whole state that a pipeline told, and when the first shard told its own."""

    digest: str
    told_ms: int


class BackupLog:
    """The log in Kafka, as a source."""

    def __init__(self, connection: Mapping[str, str], database: str) -> None:
        self._connection = {**connection, "queued.max.messages.kbytes": _PREFETCH_KB}
        self._database = database
        self.topic = TopicNames(database).transactions

    def rulings(self) -> Rulings:
        log = log_id(self._connection, self._database)
        return rulings(self._connection, self._database, log)

    def spans(self) -> dict[int, Span]:
        with TopicReader(self._connection, self.topic) as reader:
            return reader.spans()

    def pieces(self, partition: int, start: int, end: int) -> Iterator[Piece]:
        """The records of a partition with offsets from ``start`` to before ``end``, in order.
        Raises BackupError: the log begins later, or does so while it is read.
        """
        if start >= end:
            return
        with TopicReader(self._connection, self.topic) as reader:
            self._check_untrimmed(reader, partition, start)
            reader.assign({partition: start})
            at = start
            for batch in reader.until({partition: end}):
                piece = _piece(partition, batch).between(start, end)
                if not len(piece.offsets):
                    continue
                if piece.end - at > len(piece.offsets):  # control records, or records that are gone
                    self._check_untrimmed(reader, partition, at)
                at = piece.end
                yield piece
            if at < end:
                self._check_untrimmed(reader, partition, at)

    def row(self, partition: int, offset: int) -> Row | None:
        """The record at an offset before the end; None: there is none, or not any more."""
        with TopicReader({**self._connection, **SINGLE}, self.topic) as reader:
            for record in reader.between({partition: (offset, offset + 1)}):
                if record.offset() == offset:
                    return offset, record.timestamp()[1], record.key(), record.value()
        return None

    def low(self, partition: int) -> int:
        """The first offset of a partition that was not trimmed."""
        with TopicReader(self._connection, self.topic) as reader:
            return reader.span(partition).low

    def _check_untrimmed(self, reader: TopicReader, partition: int, at: int) -> None:
        """Refuse to go on at an offset that the log does not have any more.

        A reader that comes too late is silently moved to the first record that is left.
        """
        low = reader.span(partition).low
        if low > at:
            raise BackupError(
                f"{self.topic}, partition {partition}: the records from {at} on are needed "
                f"and those before {low} were trimmed; begin with the backup that it was "
                "trimmed behind"
            )


def _piece(partition: int, batch: list[Any]) -> Piece:
    offsets = np.fromiter((each.offset() for each in batch), np.int64, len(batch))
    times = np.fromiter((each.timestamp()[1] for each in batch), np.int64, len(batch))
    keys, values = [each.key() for each in batch], [each.value() for each in batch]
    return Piece(partition, offsets, times, keys, values)


def told_digests(
    connection: Mapping[str, str], database: str, interval: int, seqs: Container[int]
) -> dict[int, dict[str, ToldState]]:
    """Return the digests of the whole state that pipelines published: seq -> incarnation -> the sum
    over all shards.

    ``interval``: transactions from digest to digest; others are of another life. ``seqs``: whose
    digests are wanted; there may be many more, as they are kept for good.
    Raises ReadingError: Kafka does not answer.
    """
    found: dict[tuple[int, str], dict[int, tuple[StateDigest, int]]] = {}
    with TopicReader(connection, TopicNames(database).digests) as reader:
        for record in reader.whole():
            digest = decoded(_decode_digest, record.value() or b"")
            if digest is not None and digest.interval == interval and digest.seq in seqs:
                pipeline = (record.key() or b"").rpartition(b"/")[2].decode("utf-8", "replace")
                shards = found.setdefault((digest.seq, pipeline), {})
                shards[digest.shard] = digest, record.timestamp()[1]
    told: dict[int, dict[str, ToldState]] = {}
    for (seq, pipeline), shards in found.items():
        digests = [digest for digest, _ in shards.values()]
        if len(digests) == digests[0].shards:
            told_ms = min(told_ms for _, told_ms in shards.values())
            told.setdefault(seq, {})[pipeline] = ToldState(_sum(digests), told_ms)
    return told


def _sum(digests: Iterable[StateDigest]) -> str:
    low = high = 0
    for digest in digests:
        high, low = high + int(digest.state[:_LANE], 16), low + int(digest.state[_LANE:], 16)
    return f"{high & _MASK:016x}{low & _MASK:016x}"


_ADVICE = (
    "keep this backup, it has what the log has lost; to go on with the log as it is, take a new "
    "backup in another folder (docs/operations.md, 'The end of the log is lost')"
)


def require_same_end(folder: BackupFolder, log: BackupLog, spans: Mapping[int, Span]) -> None:
    """Refuse a log that does not have the last record that a backup has of each partition.

    A broker may lose the tail of the log after it was copied, and the log then grows past there.
    What comes after the backup's end belongs to another history, so the two must not be joined.
    The pipeline's shards compare their ends in the same way (`sorter.state`). A partition that was
    trimmed past that record cannot be compared.
    Raises BackupError: the log has another record there, or none.
    """
    for partition, span in spans.items():
        last = folder.last_row(partition)
        if last is not None and last[0] >= span.low:
            _require(folder, log, partition, last, span)


def _require(folder: BackupFolder, log: BackupLog, partition: int, last: Row, span: Span) -> None:
    """Refuse a partition of the log if it has been there, and is not now."""
    offset, append_ms, *_ = last
    if offset >= span.high:
        raise BackupError(
            f"{folder.folder} has partition {partition} up to offset {offset + 1}, and {log.topic} "
            f"ends at {span.high}: the end of the log was lost, say with a broker's power; "
            f"{_ADVICE}"
        )
    if last == log.row(partition, offset) or log.low(partition) > offset:
        return
    raise BackupError(
        f"{log.topic} is not what {folder.folder} has copied: the last record of partition "
        f"{partition} was at offset {offset}, appended at {append_ms} ms, and is now another one, "
        "or none. So the end of the log was lost, say with a broker's power, and has grown again; "
        f"{_ADVICE}"
    )
