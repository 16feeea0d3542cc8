"""`streamydb up` and a facade that answers anything, or nothing, or never stops answering."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamydb.cli import front
from streamydb.cli.common import Failure
from streamydb.cli.front import Front
from streamydb.local import processes
from streamydb.local.folder import FACADE, DatabaseFolder
from tests.support.seeds import seeds

pytestmark = [pytest.mark.randomized, pytest.mark.timeout(120)]

HEADERS: Final = (
    b"Content-Length: 4", b"Content-Length: x", b"Content-Length: 99", b"Connection: close",
    b"Content-Encoding: gzip", b"Content-Encoding: zstd, deflate", b"Transfer-Encoding: chunked",
    b"Content-Type: text/html; charset=nope", b"Location: http://[::1", b"Location: //a..b:x/",
    b"Location: \xff\xfe", b"Set-Cookie: a=\xff; expires=never", b"no header", b": empty",
    b"WWW-Authenticate: Bearer", b"X: " + 200_000 * b"x",
)  # fmt: skip
HEADS: Final = (b"HTTP/1.1 ", b"HTTP/1.0 ", b"HTTP/9.9 ", b"garbage ", b"\x16\x03\x01\x00\x05", b"")
ENDS: Final = ("close", "reset", "hold", "drip", "flood")


class Answer(NamedTuple):
    """What a server sends, and what it does then."""

    data: bytes
    end: str
    ready: bool | None
    """It says that it is ready; None: that may be read into it."""


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    """An answer; often one that is whole, sometimes a piece of one, or none at all."""
    head = draw(st.sampled_from(HEADS[:1] * 5 + HEADS))
    status = draw(st.sampled_from([200, 204, 301, 302, 401, 404, 421, 503, 1000, 100, 101]))
    headers = draw(st.lists(st.sampled_from(HEADERS), max_size=3))
    body = draw(st.sampled_from([b"", b"abcd", b"zz\r\n", b"\x1f\x8b\x08\x00garbage"]))
    lines = [head + b"%d Said" % status, *headers, b"", body]
    data = b"\r\n".join(lines)
    whole = draw(st.integers(0, 3)) > 0
    sent = data if whole else data[: draw(st.integers(0, len(data)))]
    end = draw(st.sampled_from(ENDS))
    if not 200 <= status < 300:
        return Answer(sent, end, None if head != HEADS[0] or not whole else False)
    sound = whole and head == HEADS[0] and not headers and end != "reset"
    return Answer(sent, end, True if sound else None)


def _serve(server: socket.socket, answer: Answer) -> None:
    """Answer one after the other, until the server is closed."""
    with suppress(OSError):
        while True:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.recv(65_536)
                connection.sendall(answer.data)
                if answer.end == "reset":
                    linger = b"\x01\0\0\0\0\0\0\0"
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                if answer.end == "hold":
                    connection.recv(1)
                while answer.end == "flood" or (answer.end == "drip" and not _left(connection)):
                    connection.sendall(b"x")


def _left(connection: socket.socket) -> bool:
    """Wait a little for the other side to leave."""
    return bool(select.select([connection], [], [], 0.02)[0])


@contextmanager
def served(answer: Answer) -> Iterator[int]:
    """The port of a server that answers so."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_serve, args=(server, answer), daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def _found(ends_after: int | None) -> Any:
    """Stand in for `processes.find`: the server is the facade, which ends after some looks."""
    looks = iter(range(10**9))

    def find(_: Path, role: str) -> Any:
        ended = role == FACADE and ends_after is not None and next(looks) >= ends_after
        return None if ended else SimpleNamespace(pid=os.getpid())

    return find


HELD: Final = Answer(b"", "hold", ready=False)
DRIPPING: Final = Answer(b"HTTP/1.1 200 OK\r\nX: ", "drip", ready=False)
PACKED: Final = Answer(
    b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd",
    "hold", ready=True,
)  # fmt: skip
MOVED: Final = Answer(
    b"HTTP/1.1 302 Found\r\nLocation: /\r\nSet-Cookie: a=\xff\r\nContent-Length: 0\r\n\r\n",
    "close", ready=False,
)  # fmt: skip


@example(HELD, None, None)
@example(DRIPPING, None, None)
@example(PACKED, None, None)
@example(MOVED, None, None)
@given(answers(), st.sampled_from([None, None, 0, 1]), st.sampled_from([None, "db.example", "::1"]))
@settings(max_examples=seeds(40))
def test_a_start_ends_with_success_or_says_why_not(
    answer: Answer, ends_after: int | None, name: str | None
) -> None:
    """What is ready is given all the time that a busy machine takes; nothing waits for it."""
    said, ready, wait_s = "", None, 60 if answer.ready else 0.15
    with TemporaryDirectory() as home, pytest.MonkeyPatch.context() as patched:
        patched.setattr(front, "ASK_S", 60 if answer.ready else 0.1)
        patched.setattr(processes, "find", _found(ends_after))
        target: Any = SimpleNamespace(files=DatabaseFolder(Path(home), "bank"))
        with served(answer) as port:
            asked = Front(port, wait_s, name=name)
            try:
                ready = front._comes_up(target, f"http://127.0.0.1:{port}", asked)
            except Failure as failure:
                said = str(failure)
    if ready is None:
        assert f"the facade is not ready after {wait_s} s (--timeout" in said
    if ends_after == 0:
        assert ready is False
    elif ends_after is None and answer.ready is not None:
        assert bool(ready) is answer.ready
