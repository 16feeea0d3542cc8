"""A reader that gives records in columns: librdkafka by its C interface.

confluent-kafka makes an object of each record, and others of its parts when it is asked for them.
That takes longer than all that a read model does with a change. So the same library, which
confluent-kafka's wheel brings, is called directly here, and a kernel copies records from its memory
into arrays. Whoever reads fewer records takes a reader of `streamydb.kafka.clients`.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ctypes.util import find_library
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import numpy as np
from confluent_kafka import KafkaError, KafkaException

from streamydb.errors import ConfigurationError
from streamydb.frames.addresses import SPARE_BYTES, call_at, copy_at, double_at, start_of, word_at
from streamydb.frames.jit import kernel, leaf
from streamydb.frames.table import Bytes, Ragged
from streamydb.kafka.columns import NO_KEY, NO_VALUE, Ints, RecordColumns
from streamydb.kafka.connection import ConnectionState
from streamydb.kafka.errors import ReadFailure

_CONSUMER: Final = 1
_OK: Final = 0
_TEXT_BYTES: Final = 512
_ENDING: Final = "streamydb-ending"

# Where the fields of librdkafka's `rd_kafka_message_t` lie, with pointers of eight bytes.
_ERR, _TOPIC, _PARTITION, _PAYLOAD, _PAYLOAD_BYTES = 0, 8, 16, 24, 32
_KEY, _KEY_BYTES, _OFFSET = 40, 48, 56
_SIGN: Final = 1 << 31
_WORD_BYTES: Final = 8

_POINTER: Final = ctypes.c_void_p
_TEXT: Final = ctypes.c_char_p
_NOTE: Final = ctypes.CFUNCTYPE(None, _POINTER, ctypes.c_int, _TEXT, _POINTER)
_FUNCTIONS: Final[dict[str, tuple[Any, list[Any]]]] = {
    "conf_new": (_POINTER, []),
    "conf_set": (ctypes.c_int, [_POINTER, _TEXT, _TEXT, _TEXT, ctypes.c_size_t]),
    "conf_set_error_cb": (None, [_POINTER, _NOTE]),
    "conf_destroy": (None, [_POINTER]),
    "new": (_POINTER, [ctypes.c_int, _POINTER, _TEXT, ctypes.c_size_t]),
    "poll_set_consumer": (ctypes.c_int, [_POINTER]),
    "queue_get_consumer": (_POINTER, [_POINTER]),
    "queue_destroy": (None, [_POINTER]),
    "topic_partition_list_new": (_POINTER, [ctypes.c_int]),
    "topic_partition_list_add": (_POINTER, [_POINTER, _TEXT, ctypes.c_int32]),
    "topic_partition_list_set_offset": (
        ctypes.c_int, [_POINTER, _TEXT, ctypes.c_int32, ctypes.c_int64],
    ),
    "topic_partition_list_destroy": (None, [_POINTER]),
    "assign": (ctypes.c_int, [_POINTER, _POINTER]),
    "incremental_assign": (_POINTER, [_POINTER, _POINTER]),
    "error_code": (ctypes.c_int, [_POINTER]),
    "error_destroy": (None, [_POINTER]),
    "topic_new": (_POINTER, [_POINTER, _TEXT, _POINTER]),
    "topic_destroy": (None, [_POINTER]),
    "consume_batch_queue": (
        ctypes.c_ssize_t, [_POINTER, ctypes.c_int, _POINTER, ctypes.c_size_t],
    ),
    "message_destroy": (None, [_POINTER]),
    "consumer_close": (ctypes.c_int, [_POINTER]),
    "destroy": (None, [_POINTER]),
}  # fmt: skip
"""What is called, without the prefix that all have: what it returns, and its arguments."""


class ConsumedRecords(NamedTuple):
    """The records that were there, and the failures."""

    records: RecordColumns
    failures: list[ReadFailure]


_NOTHING: Final = ConsumedRecords(RecordColumns.of([]), [])


class ColumnReader:
    """A consumer of one topic, or of several. It joins no group; its owner assigns the partitions.

    Not for several threads at once.

    Attributes:
        connections: the state of its connections.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Connect in the background.
        Raises ConfigurationError: librdkafka refuses it, or is not there.
        """
        self.connections = ConnectionState(config)
        self._told = _NOTE(self._note)
        self._handle = self._made(config)
        library = _library()
        library.poll_set_consumer(self._handle)
        self._queue = library.queue_get_consumer(self._handle)
        self._topics: Ints = np.zeros((0, 2), np.int64)
        self._messages: Ints = np.zeros(0, np.int64)  # their addresses
        self._address = 0
        self._closed = False

    def assign(self, topic: str, positions: Mapping[int, int]) -> None:
        """Read each partition from its position on; those of before are left.
        Raises KafkaException: librdkafka refuses.
        """
        with _partitions(topic, positions) as partitions:
            code = _library().assign(self._handle, partitions)
        if code != _OK:
            raise KafkaException(KafkaError(code))

    def add(self, topic: str, number: int, positions: Mapping[int, int]) -> None:
        """Read one more topic, each partition from its position on, beside those of before.

        ``number``: its records have it in their column of topics.
        Raises KafkaException: librdkafka refuses.
        """
        library = _library()
        # Messages hold the address of their topic, which is another one only if nobody holds it.
        address = library.topic_new(self._handle, topic.encode(), None)
        if address is None:
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        self._topics = np.append(self._topics, np.array([[address, number]], np.int64), axis=0)
        with _partitions(topic, positions) as partitions:
            error = library.incremental_assign(self._handle, partitions)
        if error is not None:
            code = library.error_code(error)
            library.error_destroy(error)
            raise KafkaException(KafkaError(code))

    def take(self, count_max: int, timeout_s: float) -> ConsumedRecords:
        """Return the records that are there, at most ``count_max``; wait for the first one.
        Raises ValueError: it is closed.
        """
        if self._closed:
            raise ValueError("the reader is closed")
        if len(self._messages) < count_max:
            self._messages = np.zeros(count_max, np.int64)
            self._address = self._messages.ctypes.data
        count = self._consume(0, count_max, 0)
        if not count:
            # With a time to wait, librdkafka would wait until it has all of them.
            count = self._consume(0, 1, timeout_s)
            count += self._consume(count, count_max - count, 0) if count else 0
        if not count:
            return _NOTHING
        return _taken(*_gathered(self._messages[:count], _library().let_go, self._topics))

    def close(self) -> None:
        """Disconnect, in the background: librdkafka's threads may look up only once a second."""
        if not self._closed:
            self._closed = True
            threading.Thread(target=self._end, name=_ENDING, daemon=True).start()

    def __del__(self) -> None:
        if hasattr(self, "_closed") and not sys.is_finalizing():
            self.close()

    def _made(self, config: Mapping[str, Any]) -> int:
        library, text = _library(), ctypes.create_string_buffer(_TEXT_BYTES)
        conf = library.conf_new()
        library.conf_set_error_cb(conf, self._told)
        for name, value in config.items():
            text_value = str(value).lower() if isinstance(value, bool) else str(value)
            code = library.conf_set(conf, name.encode(), text_value.encode(), text, _TEXT_BYTES)
            if code != _OK:
                library.conf_destroy(conf)
                raise ConfigurationError(f"librdkafka refuses {name}: {text.value.decode()}")
        handle: int | None = library.new(_CONSUMER, conf, text, _TEXT_BYTES)
        if handle is None:
            library.conf_destroy(conf)
            raise ConfigurationError(f"librdkafka makes no reader: {text.value.decode()}")
        return handle

    def _consume(self, start: int, count_max: int, timeout_s: float) -> int:
        """Have librdkafka put addresses of messages into the array, from a row on; return how
        many.
        """
        count = _library().consume_batch_queue(
            self._queue, int(1_000 * timeout_s), self._address + _WORD_BYTES * start, count_max
        )
        return max(0, int(count))

    def _note(self, _handle: int, code: int, reason: bytes, _opaque: int) -> None:
        self.connections(KafkaError(code, reason.decode(errors="replace")))

    def _end(self) -> None:
        library = _library()
        library.consumer_close(self._handle)
        library.queue_destroy(self._queue)
        for address in self._topics[:, 0].tolist():
            library.topic_destroy(address)
        library.destroy(self._handle)


@contextmanager
def _partitions(topic: str, positions: Mapping[int, int]) -> Iterator[int]:
    """Make librdkafka's list of these partitions, and free it."""
    library, name = _library(), topic.encode()
    partitions = library.topic_partition_list_new(len(positions))
    try:
        for number, at in positions.items():
            library.topic_partition_list_add(partitions, name, number)
            library.topic_partition_list_set_offset(partitions, name, number, at)
        yield partitions
    finally:
        library.topic_partition_list_destroy(partitions)


def library_path() -> str:
    """The file of the librdkafka that confluent-kafka uses: its wheel's, or the system's."""
    found_at = find_spec("confluent_kafka")
    package = Path(str(found_at and found_at.origin)).parent
    brought = [
        *package.with_name("confluent_kafka.libs").glob("librdkafka*"),  # Linux
        *package.joinpath(".dylibs").glob("librdkafka*"),  # macOS
    ]
    path = str(brought[0]) if brought else find_library("rdkafka")
    return path or "librdkafka.so.1"


@cache
def _library() -> Any:
    """Load the library that confluent-kafka uses; return the functions that are called here.

    `let_go` is the address of the one that frees a message.
    """
    functions = SimpleNamespace()
    try:
        loaded = ctypes.CDLL(library_path())
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(loaded, f"rd_kafka_{name}")
            function.restype, function.argtypes = result, arguments
            setattr(functions, name, function)
    except (OSError, AttributeError) as error:
        raise ConfigurationError(
            f"librdkafka cannot be loaded ({error}): install confluent-kafka from its wheel"
        ) from error
    functions.let_go = ctypes.cast(functions.message_destroy, _POINTER).value
    return functions


@leaf
def _signed(word: int) -> int:
    """A number of 32 bits that may be negative."""
    return word - 2 * _SIGN if word >= _SIGN else word


@leaf
def _number_of(topic: int, topics: Ints) -> int:
    """The number of the topic at an address; 0 if none has a number."""
    for row in range(len(topics)):
        if topics[row, 0] == topic:
            return int(topics[row, 1])
    return 0


@kernel
def _gathered(
    messages: Ints, let_go: int, topics: Ints
) -> tuple[Ints, Bytes, Bytes, Ints, Bytes, Ints]:
    """Copy messages out of librdkafka's memory, and give it back.

    ``topics``: addresses and numbers of topics, shape (k, 2).

    Returns:
        Code, partition, offset and topic, shape (4, n); what they lack; keys and values, each as
        bytes and bounds. The value of a failure is its reason.
    """
    n = len(messages)
    numbers = np.empty((4, n), np.int64)
    absent = np.zeros(n, np.uint8)
    key_bounds, value_bounds = np.zeros(n + 1, np.int64), np.zeros(n + 1, np.int64)
    for i in range(n):
        at = messages[i]
        numbers[0, i], numbers[1, i] = _signed(double_at(at)), _signed(double_at(at + _PARTITION))
        numbers[2, i] = word_at(at + _OFFSET)
        numbers[3, i] = _number_of(word_at(at + _TOPIC), topics)
        absent[i] = NO_KEY * (word_at(at + _KEY) == 0) + NO_VALUE * (word_at(at + _PAYLOAD) == 0)
        key_bytes = 0 if absent[i] & NO_KEY else word_at(at + _KEY_BYTES)
        value_bytes = 0 if absent[i] & NO_VALUE else word_at(at + _PAYLOAD_BYTES)
        key_bounds[i + 1] = key_bounds[i] + key_bytes
        value_bounds[i + 1] = value_bounds[i] + value_bytes
    keys = np.zeros(key_bounds[n] + SPARE_BYTES, np.uint8)
    values = np.zeros(value_bounds[n] + SPARE_BYTES, np.uint8)
    for i in range(n):
        at = messages[i]
        copy_at(
            start_of(keys) + key_bounds[i], word_at(at + _KEY), key_bounds[i + 1] - key_bounds[i]
        )
        copy_at(
            start_of(values) + value_bounds[i], word_at(at + _PAYLOAD),
            value_bounds[i + 1] - value_bounds[i],
        )  # fmt: skip
        call_at(let_go, at)
    return numbers, absent, keys, key_bounds, values, value_bounds


def compile_kernels() -> None:
    """Compile what reads, so that others find it in the cache."""
    _gathered(np.zeros(0, np.int64), 0, np.zeros((0, 2), np.int64))


def _taken(
    numbers: Ints, absent: Bytes, keys: Bytes, key_bounds: Ints, values: Bytes, value_bounds: Ints
) -> ConsumedRecords:
    """Part records and failures."""
    codes, partitions, offsets, topics = numbers
    records = RecordColumns(
        partitions, offsets, Ragged(keys, key_bounds), Ragged(values, value_bounds), absent, topics
    )
    if not np.count_nonzero(codes):
        return ConsumedRecords(records, [])
    good = codes == _OK
    failures = [
        ReadFailure(
            _error(int(codes[row]), records.values[row]), int(partitions[row]), int(offsets[row])
        )
        for row in np.flatnonzero(~good).tolist()
    ]
    return ConsumedRecords(records.where(good), failures)


def _error(code: int, reason: bytes) -> KafkaError:
    """An error; librdkafka has words of its own for what comes without a reason."""
    said = reason.partition(b"\0")[0].decode(errors="replace")
    return KafkaError(code, said) if said else KafkaError(code)
