"""Records of `<db>.streams`: a procedure's emissions, and their partition in Kafka."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from streamydb.errors import RecordError
from streamydb.records.formats import UNREADABLE, decoded
from streamydb.records.names import NAME

_T = TypeVar("_T")

STREAMS_SCOPE: Final = "$streams/"
"""What stands before a stream's name in the scopes of a token. No key begins so."""

_STREAM: Final = re.compile(rf"{NAME}\.{NAME}")
_MASK: Final = 0xFFFFFFFF
_SEED: Final = 0x9747B28C
_FACTOR: Final = 0x5BD1E995


class Emitted(msgspec.Struct, frozen=True):
    """A record of a stream, emitted by transaction ``seq`` as its record number ``index``.

    ``batch``: the seq of the transaction with which it all began. ``id``: that of the emitting
    transaction. ``ts_ms``: its commit timestamp.
    """

    stream: str
    seq: int
    index: int
    ts_ms: int
    id: str
    batch: int
    record: Any


class _EmissionPlace(msgspec.Struct):
    seq: int
    index: int


_decode = msgspec.json.Decoder(Emitted).decode
_decode_place = msgspec.json.Decoder(_EmissionPlace).decode


def decode_emitted(value: bytes | None) -> Emitted:
    """The record of a stream in a value. Raises RecordError: it is none."""
    return _read(_decode, value)


def place_of(value: bytes | None) -> tuple[int, int]:
    """(seq, index) of the record of a stream; raises as `decode_emitted`."""
    place = _read(_decode_place, value)
    return place.seq, place.index


def _read(decode: Callable[[bytes], _T], value: bytes | None) -> _T:
    try:
        return decode(value or b"")
    except UNREADABLE as fault:
        raise RecordError(f"Not a record of a stream ({fault}); is this the topic?") from fault


def is_strange_emission(value: bytes | None) -> bool:
    """Return True if a record tells no place, so something else has written it."""
    return decoded(_decode_place, value or b"") is None


def is_stream(name: str) -> bool:
    """Return True if a name can be that of a stream: `module.stream`."""
    return _STREAM.fullmatch(name) is not None


def partition_of(stream: str, partitions: int) -> int:
    """The partition that Kafka's own partitioner chooses: murmur2 of the key (KafkaProducer)."""
    return (_murmur2(stream.encode()) & 0x7FFFFFFF) % partitions


def _murmur2(data: bytes) -> int:
    """MurmurHash2 (Appleby), 32 bits, with the seed of Kafka."""
    whole = len(data) & ~3
    mixed = _SEED ^ len(data)
    for start in range(0, whole, 4):
        part = int.from_bytes(data[start : start + 4], "little") * _FACTOR & _MASK
        part = (part ^ part >> 24) * _FACTOR & _MASK
        mixed = mixed * _FACTOR & _MASK ^ part
    if whole < len(data):
        mixed = (mixed ^ int.from_bytes(data[whole:], "little")) * _FACTOR & _MASK
    mixed = (mixed ^ mixed >> 13) * _FACTOR & _MASK
    return mixed ^ mixed >> 15
