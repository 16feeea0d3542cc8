"""Read model and facade of a database in the background: started by `up`, stopped by `down`."""

from __future__ import annotations

import http
import http.client
import sys
import threading
import time
from typing import TYPE_CHECKING

from streamydb.cli.common import fail
from streamydb.cli.launch import log_tail

if TYPE_CHECKING:
    from pathlib import Path

    from streamydb.cli.phases import Phases
    from streamydb.cli.target import Target

HTTP_PORT = 8080
"""Where the facade listens, if nothing else does."""

READY_S_MAX = 60.0
"""How long the facade may take to be ready, in seconds."""

POLL_S = 0.1
GRACE_S = 15.0


def start_front(target: Target, port: int | None, phases: Phases) -> str:
    """Start read model and facade unless they run; the facade's address once it is ready."""
    from streamydb import processes
    from streamydb.place import FACADE, READ_MODEL

    folder = target.place.folder
    environment = {"STREAMYDB_HOME": str(target.settings.home)}
    with phases.phase("REST facade") as phase:
        phase.note("starting the read model and the facade")
        if processes.find(folder, READ_MODEL) is None:
            processes.start(folder, READ_MODEL, _command(target, "read-model"), environment)
        url = target.place.facade_url()
        if url is None:
            chosen = _free_port(port)
            command = _command(target, "serve", "--port", str(chosen))
            url = f"http://127.0.0.1:{chosen}"
            processes.start(folder, FACADE, command, environment)
            target.place.note_facade(url)
        _wait_until_ready(target, url)
        phase.outcome = url
    return url


def stop_front(home: Path, name: str, phases: Phases) -> bool:
    """Stop one database's facade and read model; False if neither ran."""
    from streamydb import processes
    from streamydb.place import FACADE, READ_MODEL, Place

    folder = Place(home, name).folder
    roles = [role for role in (FACADE, READ_MODEL) if processes.find(folder, role) is not None]
    if not roles:
        return False
    with phases.phase(f"Stopping the facade of {name}"):
        for role in roles:
            processes.stop(folder, role, GRACE_S)
    return True


def _command(target: Target, *words: str) -> list[str]:
    name, *options = words
    place = ["--database", target.database, "--bootstrap", target.bootstrap]
    return [sys.executable, "-m", "streamydb.cli", name, *place, *options]


def _free_port(wanted: int | None) -> int:
    """The wanted port; without a wish the usual one, or any other if it is taken."""
    from streamydb.broker.ports import free_port, is_free

    if wanted is not None:
        return wanted
    return HTTP_PORT if is_free(HTTP_PORT) else free_port()


def _wait_until_ready(target: Target, url: str) -> None:
    """Wait for /health/ready.

    Raises:
        Failure: a process ended (with the end of its log), or the time is up.
    """
    from streamydb import processes
    from streamydb.place import FACADE, READ_MODEL

    folder = target.place.folder
    deadline = time.monotonic() + READY_S_MAX
    ticks = threading.Event()
    while not _is_ready(url):
        for role in (READ_MODEL, FACADE):
            if processes.find(folder, role) is None:
                fail(f"the {role} ended.\n{log_tail(processes.log_path(folder, role))}")
        if time.monotonic() > deadline:
            log = log_tail(processes.log_path(folder, FACADE))
            fail(f"the facade is not ready after {READY_S_MAX:.0f} s.\n{log}")
        ticks.wait(POLL_S)


def _is_ready(url: str) -> bool:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=5)
    try:
        connection.request("GET", "/health/ready")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
