"""PostgreSQL's wire protocol, as far as a load of prepared calls needs it (pure).

The load shares the machine with the server, so what it takes the server lacks. asyncpg, the fastest
driver for Python, took twice as much processor time (28 µs a call against 14, 16 connections), and
the server did 0.55 of the transfers (once, not by turns, on a busy machine). The format is that of
PostgreSQL's documentation, "Message Formats", protocol 3.0.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Final

from bench.errors import BenchError

__all__ = ["READY", "Call", "error_code", "is_ready", "messages", "prepare", "startup"]

READY: Final = b"Z\x00\x00\x00\x05I"
"""The last message of an answer: the server waits, in no transaction."""

_VERSION: Final = 196_608
_INT8: Final = 20
_BINARY: Final = 1
_HEADER: Final = struct.Struct("!cI")
_STATEMENT: Final = b"c"
_SYNC: Final = b"S\x00\x00\x00\x04"
_EXECUTE: Final = b"E\x00\x00\x00\x09\x00\x00\x00\x00\x00"


def startup(user: str, database: str, settings: Mapping[str, str]) -> bytes:
    """Return the first message of a connection; ``settings`` hold as long as it lasts."""
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    pairs = {"user": user, "database": database, "options": options}
    body = b"".join(part.encode() + b"\0" for pair in pairs.items() for part in pair) + b"\0"
    return struct.pack("!II", len(body) + 8, _VERSION) + body


def prepare(statement: str, parameters: int) -> bytes:
    """Return what prepares a statement whose parameters are 8-byte integers."""
    types = struct.pack(f"!H{parameters}I", parameters, *[_INT8] * parameters)
    body = _STATEMENT + b"\0" + statement.encode() + b"\0" + types
    return b"P" + struct.pack("!I", len(body) + 4) + body + _SYNC


class Call:
    """Makes the messages that execute the prepared statement once, in one transaction."""

    def __init__(self, parameters: int) -> None:
        """Prepare for so many integers."""
        self._pack = struct.Struct("!" + "Iq" * parameters).pack
        head = b"\0" + _STATEMENT + b"\0" + struct.pack("!HHH", 1, _BINARY, parameters)
        tail = struct.pack("!HH", 1, _BINARY)
        length = 4 + len(head) + 12 * parameters + len(tail)
        self._before = b"B" + struct.pack("!I", length) + head
        self._after = tail + _EXECUTE + _SYNC

    def of(self, *values: int) -> bytes:
        """Return the messages for these parameters."""
        fields = [part for value in values for part in (8, value)]
        return self._before + self._pack(*fields) + self._after


def is_ready(answer: bytes) -> bool:
    """Return True if an answer has come to its end."""
    return answer.endswith(READY)


def messages(answer: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield type and body of each whole message."""
    at = 0
    while at + _HEADER.size <= len(answer):
        kind, length = _HEADER.unpack_from(answer, at)
        if at + 1 + length > len(answer):
            return
        yield kind, answer[at + _HEADER.size : at + 1 + length]
        at += 1 + length


def error_code(answer: bytes) -> str | None:
    """Return the SQLSTATE of an answer's error; None if it has none.

    Raises:
        BenchError: the error has no SQLSTATE.
    """
    for kind, body in messages(answer):
        if kind == b"E":
            for field in body.split(b"\0"):
                if field[:1] == b"C":
                    return field[1:].decode()
            raise BenchError(f"PostgreSQL answered {body[:200]!r}")
    return None
