"""What driver and worker of the real-time gear tell each other."""

from __future__ import annotations

import socket

import pytest

from streamydb.errors import InvariantViolation
from streamydb.pipeline.realtime.messages import (
    FRAME_BYTES_MAX,
    Began,
    Channel,
    Executed,
    FromWorker,
    Left,
    Play,
)


@pytest.mark.parametrize(
    "message",
    [
        Play(leads=True, covered=7),
        Began(3, 4, 99),
        Executed(9, 12, 3, b"\0" * 16, b"{}"),
        Executed(9, 12, 3, b"", None, 7),
        Left("repeated-id", "why"),
    ],
)
def test_a_message_arrives_as_it_was_sent(message: Play | FromWorker) -> None:
    one, other = map(Channel, socket.socketpair())
    one.send(message)
    one.send(message)
    assert [other.receive(), other.receive()] == [message, message]
    one.close()
    assert other.receive() is None
    other.close()


def test_half_a_message_is_an_end() -> None:
    raw, end = socket.socketpair()
    raw.sendall(b"\x09\0\0\0abc")
    raw.close()
    channel = Channel(end)
    assert channel.receive() is None
    channel.close()


def test_a_frame_that_is_too_long_is_refused() -> None:
    raw, end = socket.socketpair()
    raw.sendall((FRAME_BYTES_MAX + 1).to_bytes(4, "little"))
    channel = Channel(end)
    with pytest.raises(InvariantViolation, match="bytes came over"):
        channel.receive()
    channel.close()
    raw.close()
