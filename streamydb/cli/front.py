"""Read model, facade and copy for Kafka Connect of a database in the background: started by `up`,
stopped by `down`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from streamydb.cli.common import EXIT_USAGE, fail

if TYPE_CHECKING:
    from pathlib import Path

    from streamydb.cli.phases import Phases
    from streamydb.cli.target import Target
    from streamydb.local.fork_server import ForkServer

HTTP_PORT = 8080  # where the facade listens, if nothing else does
PREFIX = "STREAMYDB_SERVE_"

POLL_S = 0.1
ASK_S = 5.0  # how long a facade may take to say that it is ready, before it is asked again

_SMALL = {
    f"{PREFIX}RESULTS_BYTES_MAX": str(4 << 20),
    f"{PREFIX}STREAM_BYTES_MAX": str(4 << 20),
    f"{PREFIX}QUERY_MEMORY_BYTES_MAX": str(128 << 20),
}
"""Settings of a facade that keeps little in memory."""

_SAID_BYTES = 16_384  # so much of an answer is read for its reason
GRACE_S = 30.0
"""How long they may take to end: a facade ends its requests (10 s), then what it has appended."""


class Front(NamedTuple):
    """The way in which a facade is to be served, and this machine reaches it.

    Attributes:
        port: where it is to listen; None: any port will do.
        timeout_s: how long it may take to be ready.
        host: the address that it listens on.
        url: where this machine reaches it, without the port.
        name: the host to ask it for, if it answers for some only.
        small: it keeps little in memory, unless its settings say how much.
    """

    port: int | None
    timeout_s: float
    host: str = "127.0.0.1"
    url: str = "http://127.0.0.1"
    name: str | None = None
    small: bool = False

    def free(self, port: int) -> bool:
        from streamydb.local.broker.ports import is_free

        return is_free(port, self.host)


def front_of(target: Target, port: int | None, timeout_s: float) -> Front:
    """Return the facade that the option and the environment ask for. Found out before anything is
    started. Raises Failure: it would not serve with these settings, its address is not to be had,
    or it runs on another port.
    """
    front, running = wished(port, timeout_s), target.files.facade_url()
    if running is None:
        if not front.free(0):
            fail(
                f"{PREFIX}HOST: {front.host} is no address that a program on this machine may "
                "listen on. Nothing was started", EXIT_USAGE,
            )  # fmt: skip
        if front.port is not None and not front.free(front.port):
            fail(
                f"another program has port {front.port}; choose another with --http-port "
                f"({PREFIX}PORT), or leave it out: then a free one is found. Nothing was started"
            )
    elif front.port is not None and front.port != _port_of(running):
        fail(
            f"the facade of {target.database} runs at {running}, not on port {front.port}: stop it "
            f"first (`{target.command('down')}`), or leave --http-port ({PREFIX}PORT) out"
        )
    return front


def wished(port: int | None, timeout_s: float) -> Front:
    """Return the facade that the option and the environment ask for; see `front_of`."""
    if not any(name.upper().startswith(PREFIX) for name in os.environ):
        return Front(port, timeout_s)  # reading the settings imports the whole facade
    from streamydb.cli.serve import Listening, facade_settings
    from streamydb.errors import ConfigurationError
    from streamydb.facade.server import checked

    settings = facade_settings(Listening(port=port))
    try:
        checked(settings)
    except ConfigurationError as error:
        fail(f"{error}. Nothing was started", EXIT_USAGE)
    number = settings.port if "port" in settings.model_fields_set else 0
    name = settings.allowed_hosts[0] if settings.allowed_hosts else None
    return Front(number or None, timeout_s, settings.host, settings.local_url, name)


def start_front(target: Target, front: Front, phases: Phases) -> str:
    """Start read model and facade unless they run; return the address once that is ready."""
    with phases.phase("REST facade") as phase:
        phase.note("starting the read model and the facade")
        begin_front(target, front)
        while (url := _served(target, front)) is None:
            phase.note("another program took the port meanwhile")
        phase.outcome = url
    return url


def begin_front(target: Target, front: Front, forks: ForkServer | None = None) -> None:
    """Start read model and facade unless they run, and wait for neither: the topics are enough.

    ``forks``: forks them, if it can.
    """
    from streamydb.local import processes
    from streamydb.local.folder import READ_MODEL

    if processes.find(target.files.folder, READ_MODEL) is None:
        command = _command(target, "read-model")
        environment = _environment(target, front)
        processes.start(target.files.folder, READ_MODEL, command, environment, forks)
    _begin_facade(target, front, forks)


def _environment(target: Target, front: Front) -> dict[str, str]:
    """Return what the environment of both has besides that of this process."""
    from streamydb.local.own_process import few_arenas

    environment = {"STREAMYDB_HOME": str(target.settings.home), **few_arenas()}
    if front.small:
        environment |= {name: size for name, size in _SMALL.items() if name not in os.environ}
    return environment


def _begin_facade(target: Target, front: Front, forks: ForkServer | None = None) -> str:
    """Start the facade unless it runs; return its address."""
    from streamydb.local import processes
    from streamydb.local.folder import FACADE

    url = target.files.facade_url()
    if url is None:
        chosen = _free_port(front)
        waits = ["--timeout", f"{front.timeout_s:g}"]
        command = _command(target, "serve", "--port", str(chosen), *waits)
        url = f"{front.url}:{chosen}"
        target.files.note_facade(url)
        environment = _environment(target, front)
        processes.start(target.files.folder, FACADE, command, environment, forks)
    return url


def start_copy(target: Target, phases: Phases) -> None:
    """Start the copy for Kafka Connect, if the database has one and it does not run."""
    from streamydb import kafka
    from streamydb.kafka.creation import existing
    from streamydb.local import processes
    from streamydb.local.folder import CONNECT

    folder, topic = target.files.folder, kafka.TopicNames(target.database).connect
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


def _command(target: Target, command: str, *options: str) -> list[str]:
    from streamydb.local.launcher import module_command

    database_options = ["--database", target.database, "--bootstrap", target.bootstrap]
    return [*module_command("streamydb.cli"), command, *database_options, *options]


def _served(target: Target, front: Front) -> str | None:
    """Start the facade unless it runs; return its address once it is ready. None if somebody else
    took the port before it could, and no port is wished for: try again. Raises Failure: a process
    ended (with the end of its log), or the time is up.
    """
    from streamydb.local import launcher, processes
    from streamydb.local.folder import FACADE

    url = _begin_facade(target, front)
    if _comes_up(target, url, front):
        return url
    if front.port is not None or front.free(_port_of(url)):
        log = processes.log_path(target.files.folder, FACADE)
        fail(f"the {FACADE} ended.\n{launcher.end_of_log(log)}")
    return None


def _free_port(front: Front) -> int:
    """The wanted port; without a wish the usual one, or any other if it is taken."""
    from streamydb.local.broker.ports import free_port

    if front.port is not None:
        return front.port
    return HTTP_PORT if front.free(HTTP_PORT) else free_port(front.host)


def _comes_up(target: Target, url: str, front: Front) -> bool:
    """Wait until the facade is ready; False if it has ended. Raises Failure: the read model ended
    (with the end of its log), or the time is up.
    """
    from streamydb.local import launcher, processes
    from streamydb.local.folder import FACADE, READ_MODEL

    folder, why = target.files.folder, "it has not been asked yet"

    def end_of_log(role: str) -> str:
        return launcher.end_of_log(processes.log_path(folder, role))

    def settled() -> bool:
        nonlocal why
        facade = processes.find(folder, FACADE)
        if facade is None:
            return True
        listens = _listens(facade.pid, _port_of(url))
        obstacle = _obstacle(url, front.name) if listens else f"it does not listen at {url}"
        if obstacle is None:
            return True
        why = obstacle
        if processes.find(folder, READ_MODEL) is None:
            fail(f"the {READ_MODEL} ended.\n{end_of_log(READ_MODEL)}")
        return False

    if not launcher.wait_until(settled, front.timeout_s, POLL_S):
        fail(
            f"the facade is not ready after {front.timeout_s:g} s (--timeout gives it longer): "
            f"{why}.\n{end_of_log(FACADE)}"
        )
    return processes.find(folder, FACADE) is not None


def _listens(pid: int, port: int) -> bool:
    """Return True if this process serves the port, and not another that has just taken it. Another
    user's process shows nobody what it serves: it is asked.
    """
    import psutil

    try:
        connections = psutil.Process(pid).net_connections("tcp")
    except psutil.AccessDenied:
        return True
    except psutil.Error:
        return False
    return any(
        each.status == psutil.CONN_LISTEN and each.laddr.port == port for each in connections
    )


def _port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def _obstacle(url: str, name: str | None = None) -> str | None:
    """Ask a facade, which has been found to be our own process, why it is not ready; None: it is.
    It is asked for `name` if it answers only for that; its certificate may be another host's.
    Whatever it answers, and however slowly: only the status counts, and that within a time.
    """
    import asyncio

    import httpx

    fault = f"it gave no answer within {ASK_S:g} s"
    host = f"[{name}]" if name is not None and ":" in name else name
    headers = {} if host is None else {"Host": host}
    request = httpx.Request("GET", f"{url}/health/ready", headers=headers)

    async def asked() -> str | None:  # without what a client makes of redirects, cookies, bodies
        nonlocal fault
        async with (
            asyncio.timeout(ASK_S),
            httpx.AsyncHTTPTransport(verify=False) as transport,  # nothing secret is sent
        ):
            answer = await transport.handle_async_request(request)
            try:
                if answer.is_success:
                    return None
                fault, body = f"it answered with status {answer.status_code}", b""
                async for part in answer.aiter_raw():
                    body += part
                    if len(body) > _SAID_BYTES:
                        break
                return fault + _reason(body)
            finally:
                await answer.aclose()

    try:
        return asyncio.run(asked())
    except TimeoutError:
        return fault
    except httpx.TransportError as error:
        return f"it could not be asked ({type(error).__name__}: {error})"


def _reason(body: bytes) -> str:
    """The detail of a problem, to be put behind the status; empty: the answer is none."""
    import msgspec

    from streamydb.records.formats import UNREADABLE

    try:
        problem = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        detail = msgspec.json.decode(problem.get("detail", b""), type=str)
    except UNREADABLE:
        return ""
    return ": " + " ".join(detail.split()).rstrip(".")
