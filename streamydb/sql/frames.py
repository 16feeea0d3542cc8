"""Frames on a pipe: four bytes with a size, then so many bytes of msgpack."""

from __future__ import annotations

from typing import Any, BinaryIO, Final

import msgspec

HEAD_BYTES: Final = 4


def frame(value: Any) -> bytes:
    body = msgspec.msgpack.encode(value)
    return len(body).to_bytes(HEAD_BYTES, "big") + body


def size_of(head: bytes) -> int:
    return int.from_bytes(head, "big")


def read_frame(pipe: BinaryIO) -> Any:
    """Wait for a frame. Raises EOFError: the other side has gone."""
    head = pipe.read(HEAD_BYTES)
    if len(head) < HEAD_BYTES:
        raise EOFError
    return msgspec.msgpack.decode(pipe.read(size_of(head)))
