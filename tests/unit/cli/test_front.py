"""`streamydb up` and a port for the facade that another program takes first."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamydb.cli import front
from streamydb.cli.common import Failure
from streamydb.local import processes
from streamydb.local.folder import READ_MODEL, DatabaseFolder


class Ready(BaseHTTPRequestHandler):
    """Says that it is ready, as the facade of another database would."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def stranger() -> Iterator[int]:
    """The port of a server that is not ours."""
    with HTTPServer(("127.0.0.1", 0), Ready) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_a_stranger_at_the_port_is_not_taken_for_the_facade(
    stranger: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert front._is_ready(f"http://127.0.0.1:{stranger}")
    target: Any = SimpleNamespace(place=DatabaseFolder(tmp_path, "bank"))
    failing = [sys.executable, "-c", "import sys; sys.exit('the address cannot be listened on')"]
    monkeypatch.setattr(front, "_command", lambda *_: failing)
    processes.start(target.place.folder, READ_MODEL, ["sleep", "60"])
    try:
        with pytest.raises(Failure, match="the address cannot be listened on"):
            front._served(target, stranger, {})
        monkeypatch.setattr(front, "_free_port", lambda _: stranger)
        assert front._served(target, None, {}) is None, "another port is to be tried"
    finally:
        processes.stop(target.place.folder, READ_MODEL)


def test_who_serves_a_port_is_known(stranger: int) -> None:
    assert front._listens(os.getpid(), stranger)
    assert not front._listens(os.getppid(), stranger)
    with socket.create_server(("127.0.0.1", 0)) as other:
        free = other.getsockname()[1]
    assert not front._listens(os.getpid(), free)
