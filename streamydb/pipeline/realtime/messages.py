"""Messages between the driver and the worker of the real-time gear, and their framing.

They go over a Unix socket on one machine. Each is a frame: its length in four bytes, then msgpack.
"""

from __future__ import annotations

import select
import socket
import struct
from contextlib import suppress
from typing import Final, TypeAlias

import msgspec

from streamydb.errors import InvariantViolation

__all__ = ["Began", "Channel", "Executed", "FromWorker", "Left", "Play"]

FRAME_BYTES_MAX: Final = 64 << 20
_HEAD: Final = struct.Struct("<I")


class Play(msgspec.Struct, frozen=True, tag="play"):
    """The driver tells the worker its role.

    ``leads``: write outputs. ``covered``: up to this seq all outputs are written by others.
    """

    leads: bool
    covered: int


class Began(msgspec.Struct, frozen=True, tag="began"):
    """The worker has opened a base and can execute.

    ``seq``: of the base. ``position``: the first offset of the log that it takes. ``pid``: of its
    process.
    """

    seq: int
    position: int
    pid: int


class Executed(msgspec.Struct, frozen=True, tag="executed"):
    """The worker has executed a group and handed its outputs to Spark.

    ``seq``: the last one that is executed. ``position``: the next offset of the log. ``base``: the
    seq of the base. ``outputs``: hashes of the output records, 64 bits each. ``resolved``: the
    value of the resolved record to write when all of them are in Kafka; None: none is due.
    ``tail_bytes``: payloads of the records behind the base. ``follow_ups``: transactions of
    workflows are among the outputs; they go to the log, behind ``position``. ``roles``: how many
    roles the worker has taken so far.
    """

    seq: int
    position: int
    base: int
    outputs: bytes
    resolved: bytes | None = None
    tail_bytes: int = 0
    follow_ups: bool = False
    roles: int = 0


class Left(msgspec.Struct, frozen=True, tag="left"):
    """The worker ends: the other gear has to go on.

    ``reason``: a word, as `NotForThisGear` has it, or `fault`. ``what``: a sentence for people.
    """

    reason: str
    what: str


FromWorker: TypeAlias = Began | Executed | Left

_encode: Final = msgspec.msgpack.encode
_decode: Final = msgspec.msgpack.Decoder(Play | Began | Executed | Left).decode


class Channel:
    """One end of the socket."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._poll = select.poll()
        self._poll.register(connected, select.POLLIN)

    def fileno(self) -> int:
        return self._socket.fileno()

    def ready(self) -> bool:
        """Return True if `receive` has something to read, or the other end is gone."""
        return bool(self._poll.poll(0))

    def send(self, message: Play | FromWorker) -> None:
        """Send a message. Raises OSError: the other end is gone."""
        data = _encode(message)
        self._socket.sendall(_HEAD.pack(len(data)) + data)

    def receive(self) -> Play | FromWorker | None:
        """Wait for a message; None when the other end is gone."""
        head = self._exactly(_HEAD.size)
        if head is None:
            return None
        (size,) = _HEAD.unpack(head)
        if size > FRAME_BYTES_MAX:
            raise InvariantViolation(f"a message of {size:,} bytes came over the gear's socket")
        data = self._exactly(size)
        return None if data is None else _decode(data)

    def _exactly(self, size: int) -> bytes | None:
        parts: list[bytes] = []
        while size:
            try:
                part = self._socket.recv(min(size, 1 << 20))
            except OSError:
                return None
            if not part:
                return None
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
