"""Connections of a served facade: bounded in number and in silence, refused in its own words."""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import uvicorn

from streamydb.facade import FacadeSettings
from streamydb.testing.database import wait_for
from streamydb.testing.memory import MemoryDatabase
from tests.support.served import serving

REQUEST = b"GET /v1/limits HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@contextmanager
def served(
    database: MemoryDatabase | None = None, **limits: Any
) -> Iterator[tuple[uvicorn.Server, tuple[str, int]]]:
    """Serve a database, by default an empty one; the server, and where it is."""
    with serving(FacadeSettings(port=0, **limits), database) as facade:
        wait_for(lambda: facade.server.started, "the start")
        yield facade.server, ("127.0.0.1", int(facade.url.rsplit(":", 1)[1]))


def connected(place: tuple[str, int], source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(place, 20, (source, 0))


def answer(connection: socket.socket) -> tuple[int, dict[str, str], Any]:
    """An answer in JSON, and its end."""
    status, headers, body = taken(connection)
    return status, headers, json.loads(body)


def some(connection: socket.socket) -> bytes:
    """The bytes that come next.

    Raises:
        ConnectionError: none do.
    """
    if data := connection.recv(65_536):
        return data
    raise ConnectionAbortedError("it ended before the answer did")


def in_time(
    place: tuple[str, int], sent: bytes, arrived: Callable[[socket.socket], bool]
) -> socket.socket:
    """A connection on which bytes have arrived before the facade's time for a head had passed.

    A slow machine may take longer between the connection and the bytes. Then it is tried again.
    """
    for _ in range(1_000):
        connection = connected(place)
        with suppress(ConnectionError):
            connection.sendall(sent)
            if arrived(connection):
                return connection
        connection.close()
    pytest.fail("the facade ends every connection before a request")


def ended(connection: socket.socket) -> bool:
    """Wait for the end of a connection; false if something comes."""
    with suppress(ConnectionError):
        return connection.recv(1) == b""
    return True


def taken(connection: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """An answer and its end."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += some(connection)
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}
    while len(body) < int(headers["content-length"]):
        body += some(connection)
    return int(first.split()[1]), headers, body


def test_connections_are_bounded_in_total_and_of_one_address() -> None:
    with served(connections_max=3, client_connections_max=2) as (server, place):
        kept = [connected(place), connected(place)]
        wait_for(lambda: len(server.server_state.connections) == 2, "two connections")
        with connected(place) as mine:
            status, headers, body = answer(mine)
            assert (status, body["type"]) == (429, "/problems/too-many-requests")
            assert headers["content-type"] == "application/problem+json"
            assert headers["retry-after"] == "1"
            assert mine.recv(1) == b""
        kept.append(connected(place, "127.0.0.2"))
        kept[-1].sendall(REQUEST)
        assert answer(kept[-1])[0] == 200
        with connected(place, "127.0.0.3") as others:
            others.sendall(REQUEST)
            status, headers, body = answer(others)
            assert (status, body["type"]) == (503, "/problems/overloaded")
            assert headers["retry-after"] == "1"
        kept[0].close()
        wait_for(lambda: len(server.server_state.connections) == 2, "a place")
        with connected(place, "127.0.0.3") as later:
            later.sendall(REQUEST)
            assert answer(later)[0] == 200
        for one in kept:
            one.close()


@pytest.mark.parametrize("sent", [b"", b"GET /v1/lim", REQUEST + b"GET"])
def test_who_does_not_say_what_it_wants_is_cut_off(sent: bytes) -> None:
    def answered(connection: socket.socket) -> bool:
        return not sent.startswith(REQUEST) or answer(connection)[0] == 200

    with served(head_timeout_s=0.2) as (server, place):
        with in_time(place, sent, answered) as silent:
            assert ended(silent)
        wait_for(lambda: not server.server_state.connections, "the end of the connection")


def test_an_idle_connection_is_kept_for_longer_than_a_proxy_keeps_its_own() -> None:
    with served(idle_s=1) as (server, place), connected(place) as idle:
        idle.sendall(REQUEST)
        assert answer(idle)[0] == 200
        began = time.monotonic()
        assert idle.recv(1) == b""
        assert time.monotonic() - began > 0.9
        wait_for(lambda: not server.server_state.connections, "the end of the connection")
    with served() as (server, _):
        assert server.config.timeout_keep_alive > 60  # nginx, and load balancers of clouds


def test_a_request_that_takes_long_is_not_cut_off() -> None:
    database = MemoryDatabase()
    database.executing = False
    limits = {"head_timeout_s": 0.05, "verdict_timeout_s": 0.4}
    write = REQUEST.replace(b"GET /v1/limits", b"DELETE /v1/kv/a")

    def appended(connection: socket.socket) -> bool:
        """Without a transaction in the log, the facade ends the connection."""
        while not database.log.records:
            if select.select([connection], [], [], 0.01)[0]:
                return False
        return True

    with served(database, **limits) as (_, place), in_time(place, write, appended) as patient:
        assert answer(patient)[0] == 504


def test_what_is_no_http_is_refused_in_our_words() -> None:
    with served() as (_, place), connected(place) as stranger:
        stranger.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        status, headers, body = answer(stranger)
        assert (status, body["type"]) == (400, "/problems/invalid-parameter")
        assert headers["connection"] == "close"


def test_a_refused_write_keeps_its_connection_unless_much_would_have_to_be_read() -> None:
    database = MemoryDatabase()
    database.executing = False
    put = b"PUT /v1/kv/a HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n"
    with served(database, in_flight_max=1, verdict_timeout_s=20) as (server, place):
        server.config.timeout_graceful_shutdown = 1  # the first one never gets its verdict
        with connected(place) as first, connected(place) as other:
            first.sendall(put % 1 + b"1")
            wait_for(lambda: len(database.log.records) == 1, "a transaction under way")
            for _ in range(3):
                other.sendall(put % 3 + b"2")
                status, headers, body = answer(other)
                assert (status, body["type"]) == (503, "/problems/overloaded")
                assert headers["retry-after"] == "1"
                assert "connection" not in headers
                other.sendall(b"22")  # the rest of the body
            other.sendall(put % 100_000)
            assert answer(other)[1]["connection"] == "close"
        assert len(database.log.records) == 1


def test_head_keeps_its_connection() -> None:
    with served() as (_, place), connected(place) as asking:
        for _ in range(2):
            asking.sendall(REQUEST.replace(b"GET", b"HEAD"))
            head = asking.recv(65_536)
            assert head.startswith(b"HTTP/1.1 200")
            assert head.endswith(b"\r\n\r\n")
        asking.sendall(REQUEST)
        assert answer(asking)[0] == 200
