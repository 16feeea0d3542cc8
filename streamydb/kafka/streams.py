"""Read the records of a stream in their order, each once.

    for record in streams.follow(settings.client_config(), "bank", "voter.votes"):
        print(record.seq, record.index, record.record)

A stream lies in one partition of `<db>.streams`, in order of (seq, index). After a crash of the
pipeline records are there again; they are left out here, for their position was passed already.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from streamydb.kafka.names import TopicNames
from streamydb.kafka.reader import TopicReader
from streamydb.kafka.strangers import Strangers
from streamydb.records.emission import Emitted, decode_emitted, is_strange_emission

__all__ = ["Emitted", "StreamOrder", "follow"]


class StreamOrder:
    """Takes the records of a topic as they come; gives those of one stream, each once."""

    def __init__(self, stream: str, after: tuple[int, int] = (0, 0)) -> None:
        self.position = after
        self._stream = stream.encode()

    def take(self, key: bytes | None, value: bytes | None) -> Emitted | None:
        """The record, if it is one of the stream and new.
        Raises RecordError: it is not a record of a stream.
        """
        if key != self._stream:
            return None
        record = decode_emitted(value)
        if (record.seq, record.index) <= self.position:
            return None
        self.position = record.seq, record.index
        return record


def follow(
    connection: Mapping[str, str],
    database: str,
    stream: str,
    *,
    after: tuple[int, int] = (0, 0),
    end: bool = False,
) -> Iterator[Emitted]:
    """The records of a stream from the beginning, or after a position, for ever or to its end.

    ``stream``: `module.stream`. ``after``: (seq, index) of the last record that is known. ``end``:
    stop at the end that the topic has now. Raises ReadingError: there is no such topic, or the
    broker does not answer. Raises RecordError: a record is of a release that this one cannot read.
    """
    order, topic = StreamOrder(stream, after), TopicNames(database).streams
    strangers = Strangers(topic)
    with TopicReader(connection, topic) as reader:
        for message in reader.whole(follow=not end):
            if is_strange_emission(message.value()):
                strangers.pass_over(message.partition(), message.offset())
                continue
            record = order.take(message.key(), message.value())
            if record is not None:
                yield record
