"""Connections with TLS are bounded, in number and in silence, from before their handshake on."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from streamydb.facade import FacadeSettings
from streamydb.testing.database import wait_for
from tests.support.secured import Authority
from tests.support.served import serving

pytestmark = pytest.mark.usefixtures("loop")

REQUEST = b"GET /v1/limits HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


class Facade:
    """A facade with TLS, and those who come to it."""

    def __init__(self, port: int, trusted: Path) -> None:
        self.place = "127.0.0.1", port
        self._context = ssl.create_default_context(cafile=trusted)

    def silent(self) -> socket.socket:
        """One that connects and says nothing."""
        return socket.create_connection(self.place, 20)

    def status(self) -> int:
        """Ask; the status of the answer, 0 if there is none."""
        data = b""
        with suppress(OSError), self.silent() as plain, self._spoken(plain) as spoken:
            spoken.sendall(REQUEST)
            while b"\r\n" not in data and (more := spoken.recv(65_536)):
                data += more
        return int(data.split()[1]) if data else 0

    def _spoken(self, plain: socket.socket) -> ssl.SSLSocket:
        return self._context.wrap_socket(plain, server_hostname="127.0.0.1")


@pytest.fixture(params=["asyncio", "uvloop"])
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the server run on either loop."""
    import uvicorn

    if request.param == "uvloop":
        pytest.importorskip("uvloop")
    made = uvicorn.Config.__init__

    def config(self: Any, *args: Any, **more: Any) -> None:
        made(self, *args, **{**more, "loop": request.param})

    monkeypatch.setattr(uvicorn.Config, "__init__", config)


@contextmanager
def facade(folder: Path, **limits: Any) -> Iterator[Facade]:
    authority = Authority(folder)
    issued = authority.issue("facade")
    files: dict[str, Any] = {"tls_certificate_file": issued.certificate, "tls_key_file": issued.key}
    with serving(FacadeSettings(port=0, **files, **limits)) as served:
        wait_for(lambda: served.server.started, "the start")
        yield Facade(int(served.url.rsplit(":", 1)[1]), authority.file)


@pytest.mark.parametrize("bound", [{"client_connections_max": 3}, {"connections_max": 3}])
def test_who_is_silent_in_the_handshake_takes_a_place(
    tmp_path: Path, bound: dict[str, int]
) -> None:
    refusal = 429 if "client_connections_max" in bound else 503
    with facade(tmp_path, **bound) as there, ExitStack() as stack:
        silent = [stack.enter_context(there.silent()) for _ in range(3)]
        wait_for(lambda: there.status() == refusal, "the refusal of a fourth")
        with there.silent() as another:  # one too many, which has a moment only
            assert ended(another)
        silent[0].close()
        wait_for(lambda: there.status() == 200, "a place")


def test_who_is_silent_in_the_handshake_is_cut_off(tmp_path: Path) -> None:
    limits: dict[str, Any] = {"head_timeout_s": 0.3, "client_connections_max": 3}
    with facade(tmp_path, **limits) as there, ExitStack() as stack:
        silent = [stack.enter_context(there.silent()) for _ in range(10)]
        assert all(map(ended, silent))
        wait_for(lambda: there.status() == 200, "a place")


def test_a_handshake_that_fails_gives_its_place_back(tmp_path: Path) -> None:
    with facade(tmp_path, client_connections_max=1) as there:
        for _ in range(3):
            with there.silent() as stranger:
                stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
                assert ended(stranger)
            wait_for(lambda: there.status() == 200, "a place")


def ended(connection: socket.socket) -> bool:
    """Wait for the end of a connection, at most as long as its socket does."""
    with suppress(ConnectionError):
        while connection.recv(65_536):
            pass
    return True
