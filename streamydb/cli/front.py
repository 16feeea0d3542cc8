"""Read model, facade and copy for Kafka Connect of a database in the background: started by `up`,
stopped by `down`.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from streamydb.cli.common import EXIT_USAGE, fail

if TYPE_CHECKING:
    from pathlib import Path

    from streamydb.cli.phases import Phases
    from streamydb.cli.target import Target

HTTP_PORT = 8080
"""Where the facade listens, if nothing else does."""

PORT_VARIABLE = "STREAMYDB_SERVE_PORT"
PORT_MAX = 65_535

POLL_S = 0.1
GRACE_S = 30.0
"""How long they may take to end: a facade ends its requests (10 s), then what it has appended."""


def wished_port(option: int | None) -> int | None:
    """Return the port that the option names, or the variable; None: any will do.

    Raises:
        Failure: the variable holds no port.
    """
    text = os.environ.get(PORT_VARIABLE, "").strip()
    if option is not None or not text:
        return option
    if not text.isdecimal() or int(text) > PORT_MAX:
        fail(f"{PORT_VARIABLE}: {text!r} is no port from 0 to {PORT_MAX}", EXIT_USAGE)
    return int(text) or None


def refuse_taken(target: Target, port: int | None) -> None:
    """Find out before anything is started that the facade could not have its port.

    Raises:
        Failure: another program listens there.
    """
    from streamydb.local.broker.ports import is_free

    if port is None or is_free(port) or target.place.facade_url() is not None:
        return
    fail(
        f"another program has port {port}; choose another with --http-port ({PORT_VARIABLE}), or "
        "leave it out: then a free one is found. Nothing was started"
    )


def start_front(target: Target, port: int | None, phases: Phases, timeout_s: float) -> str:
    """Start read model and facade unless they run; the facade's address once it is ready.

    ``timeout_s``: how long it may take.
    """
    from streamydb.local import processes
    from streamydb.local.folder import READ_MODEL

    folder = target.place.folder
    environment = {"STREAMYDB_HOME": str(target.settings.home)}
    with phases.phase("REST facade") as phase:
        phase.note("starting the read model and the facade")
        if processes.find(folder, READ_MODEL) is None:
            processes.start(folder, READ_MODEL, _command(target, "read-model"), environment)
        while (url := _served(target, port, environment, timeout_s)) is None:
            phase.note("another program took the port meanwhile")
        phase.outcome = url
    return url


def start_copy(target: Target, phases: Phases) -> None:
    """Start the copy for Kafka Connect, if the database has one and it does not run."""
    from streamydb import kafka
    from streamydb.kafka.creation import existing
    from streamydb.local import processes
    from streamydb.local.folder import CONNECT

    folder, topic = target.place.folder, kafka.TopicNames(target.database).connect
    runs = processes.find(folder, CONNECT) is not None
    if runs or not existing(target.connection, [topic]):
        return
    with phases.phase("Copy for Kafka Connect") as phase:
        environment = {"STREAMYDB_HOME": str(target.settings.home)}
        processes.start(folder, CONNECT, _command(target, "connect"), environment)
        phase.outcome = topic


def stop_front(home: Path, name: str, phases: Phases) -> bool:
    """Stop one database's facade, read model and copy; False if none of them ran."""
    from streamydb.local import processes
    from streamydb.local.folder import CONNECT, FACADE, READ_MODEL, DatabaseFolder

    folder = DatabaseFolder(home, name).folder
    known = (FACADE, READ_MODEL, CONNECT)
    roles = [role for role in known if processes.find(folder, role) is not None]
    if not roles:
        return False
    with phases.phase(f"Stopping what reads {name}"):
        for role in roles:
            processes.stop(folder, role, GRACE_S)
    return True


def _command(target: Target, *words: str) -> list[str]:
    name, *options = words
    place = ["--database", target.database, "--bootstrap", target.bootstrap]
    return [sys.executable, "-m", "streamydb.cli", name, *place, *options]


def _served(
    target: Target, port: int | None, environment: dict[str, str], timeout_s: float
) -> str | None:
    """Start the facade unless it runs; its address once it is ready.

    None if somebody else took the port before it could, and no port is wished for: try again.

    Raises:
        Failure: a process ended (with the end of its log), or the time is up.
    """
    from streamydb.local import logs, processes
    from streamydb.local.broker.ports import is_free
    from streamydb.local.folder import FACADE

    url = target.place.facade_url()
    if url is None:
        chosen = _free_port(port)
        waits = ["--timeout", f"{timeout_s:g}"]
        command = _command(target, "serve", "--port", str(chosen), *waits)
        url = f"http://127.0.0.1:{chosen}"
        processes.start(target.place.folder, FACADE, command, environment)
        target.place.note_facade(url)
    if _comes_up(target, url, timeout_s):
        return url
    if port is not None or is_free(_port_of(url)):
        log = processes.log_path(target.place.folder, FACADE)
        fail(f"the {FACADE} ended.\n{logs.end_of_log(log)}")
    return None


def _free_port(wanted: int | None) -> int:
    """The wanted port; without a wish the usual one, or any other if it is taken."""
    from streamydb.local.broker.ports import free_port, is_free

    if wanted is not None:
        return wanted
    return HTTP_PORT if is_free(HTTP_PORT) else free_port()


def _comes_up(target: Target, url: str, timeout_s: float) -> bool:
    """Wait until the facade is ready; False if it has ended.

    Raises:
        Failure: the read model ended (with the end of its log), or the time is up.
    """
    from streamydb.local import launcher, logs, processes
    from streamydb.local.folder import FACADE, READ_MODEL

    folder = target.place.folder

    def end_of_log(role: str) -> str:
        return logs.end_of_log(processes.log_path(folder, role))

    def settled() -> bool:
        facade = processes.find(folder, FACADE)
        if facade is None or (_listens(facade.pid, _port_of(url)) and _is_ready(url)):
            return True
        if processes.find(folder, READ_MODEL) is None:
            fail(f"the {READ_MODEL} ended.\n{end_of_log(READ_MODEL)}")
        return False

    if not launcher.wait_until(settled, timeout_s, POLL_S):
        fail(
            f"the facade is not ready after {timeout_s:g} s (--timeout gives it longer).\n"
            f"{end_of_log(FACADE)}"
        )
    return processes.find(folder, FACADE) is not None


def _listens(pid: int, port: int) -> bool:
    """Return True if this process serves the port, and not another that has just taken it."""
    import psutil

    try:
        connections = psutil.Process(pid).net_connections("tcp")
    except psutil.Error:
        return False
    return any(
        each.status == psutil.CONN_LISTEN and each.laddr.port == port for each in connections
    )


def _port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def _is_ready(url: str) -> bool:
    import httpx

    try:
        return httpx.get(f"{url}/health/ready", timeout=5, trust_env=False).is_success
    except httpx.TransportError:
        return False
