"""Serving a facade over HTTP with uvicorn."""

from __future__ import annotations

import logging
import signal
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from streamydb.errors import ConfigurationError, StreamyError
from streamydb.facade.auth import load_tokens
from streamydb.facade.settings import LOOPBACK_HOSTS, FacadeSettings
from streamydb.facade.waiting import SHUTDOWN_S, Shutdown
from streamydb.kafka.connection import KafkaRetry
from streamydb.local.own_process import keep_all, often_collected, take_file_handles, trim_when_idle
from streamydb.local.signals import hangs_up
from streamydb.records.ranges import ALL_KEYS

if TYPE_CHECKING:
    from collections.abc import Callable

    import uvicorn

    from streamydb.facade.about import About
    from streamydb.facade.asgi import App
    from streamydb.facade.metrics import FacadeMetrics
    from streamydb.facade.ports import ChangeSource, FollowedModel, ServedModel, TransactionLog
    from streamydb.local.folder import PipelineStatus
    from streamydb.settings import Settings

_LOG: Final = logging.getLogger("streamydb.facade")
_BACKLOG: Final = 4_096
"""Connections that wait to be accepted: what Linux grants by default. One that finds no room tries
again after 1, 2, 4 and 8 seconds, so that a burst of some thousand clients would wait 15."""
_OTHER_FILES: Final = 500
"""Files and sockets that a facade has open beside its connections, at most."""


def checked(settings: FacadeSettings) -> FacadeSettings:
    """Return the settings as they are served with; refuse an open facade that others can reach.
    Without tokens, requests must name a loopback host: else any web page that a user of this
    machine visits could point its own host name here and read and write the database. Raises
    ConfigurationError: off loopback there must be tokens.
    """
    if load_tokens(settings):
        if not settings.on_loopback and settings.tls_key_file is None:
            _LOG.warning("serving without TLS: tokens and data can be read on the network")
        return settings
    if not settings.on_loopback:
        raise ConfigurationError(
            f"{settings.host} can be reached from other machines, so that the facade needs tokens: "
            "name a file of them with STREAMYDB_SERVE_TOKENS_FILE, or listen on 127.0.0.1"
        )
    if settings.allowed_hosts is not None:
        return settings
    return settings.model_copy(update={"allowed_hosts": (*LOOPBACK_HOSTS, settings.host)})


def make_server(
    settings: FacadeSettings,
    model: ServedModel,
    log: TransactionLog,
    changes: ChangeSource,
    pipeline: Callable[[], PipelineStatus] | None = None,
    about: About | None = None,
) -> uvicorn.Server:
    """Return the server, not started yet. Raises ConfigurationError: see `checked`, `server_of`."""
    from streamydb.facade.app import create_app

    settings = checked(settings)
    app = create_app(model, log, changes, settings, pipeline=pipeline, about=about)
    return server_of(app, settings, app.metrics, app.ending)


def server_of(
    app: App, settings: FacadeSettings, metrics: FacadeMetrics, ending: Shutdown | None = None
) -> uvicorn.Server:
    """Return a server of an application with the facade's settings and bounds, not started yet.
    Raises ConfigurationError: the certificates cannot be read.
    """
    import uvicorn

    from streamydb.facade.acceptor import Server
    from streamydb.facade.connections import protocol_of

    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=protocol_of(settings, metrics),
        ws="none",
        lifespan="on",
        access_log=False,  # it would show keys
        server_header=False,
        proxy_headers=False,
        log_config=None,
        backlog=_BACKLOG,
        h11_max_incomplete_event_size=settings.incomplete_bytes_max,
        timeout_keep_alive=settings.idle_s,
        timeout_graceful_shutdown=SHUTDOWN_S,
        ssl_certfile=settings.tls_certificate_file,
        ssl_keyfile=settings.tls_key_file,
    )
    try:
        config.load()
    except OSError as error:
        raise ConfigurationError(
            f"{settings.tls_certificate_file}, {settings.tls_key_file}: no usable certificate and "
            f"key ({error.strerror or type(error).__name__})"
        ) from None
    return Server(config, Shutdown() if ending is None else ending)


def serve(
    settings: FacadeSettings,
    model: ServedModel,
    log: TransactionLog,
    changes: ChangeSource,
    pipeline: Callable[[], PipelineStatus] | None = None,
    about: About | None = None,
) -> None:
    """Serve until SIGINT, SIGTERM or SIGHUP. Raises ConfigurationError: as `make_server` and
    `listen`.
    """
    server = make_server(settings, model, log, changes, pipeline, about)
    with suppress(ValueError):  # not the main thread: then no signal comes here
        # uvicorn ends cleanly on SIGTERM and then raises it again, as if it had been killed.
        signal.signal(signal.SIGTERM, lambda *_: None)
        if hangs_up():
            signal.signal(signal.SIGHUP, server.handle_exit)
    handles = settings.connections_max + _OTHER_FILES
    granted = take_file_handles(handles)
    if granted < handles:
        _LOG.warning(
            "this process may have %d files open, its connections may need %d: raise the limit "
            "(ulimit -n) or lower STREAMYDB_SERVE_CONNECTIONS_MAX", granted, handles,
        )  # fmt: skip
    # Have the kernels of reads loaded, or compiled, before the first request waits for that.
    with suppress(StreamyError), model.snapshot() as snapshot:
        snapshot.get("-")
        snapshot.get_json(["-"], 1)
        for at_once in (True, False):
            snapshot.scan_json(ALL_KEYS, limit=1, bytes_max=1, at_once=at_once)
    keep_all()  # a collection that walked through it would hold up all readers
    trim_when_idle()
    with listen(settings) as listener, often_collected():
        server.run(sockets=[listener])


def serve_database(settings: Settings, facade: FacadeSettings, model: FollowedModel) -> None:
    """Serve a database on Kafka until it is told to stop, as `serve`; waits until Kafka answers.
    Raises ConfigurationError: see `serve`; KafkaUnavailableError: Kafka refuses us, or has no such
    database; StoreMismatchError: the read model is of an earlier database of that name.
    """
    from streamydb.facade.about import about_database
    from streamydb.facade.kafka import KafkaLog
    from streamydb.facade.kafka_changes import KafkaChanges
    from streamydb.local.folder import DatabaseFolder

    pipeline = DatabaseFolder(settings.home, settings.database).status
    log, changes = KafkaLog(settings, facade, model), KafkaChanges(settings, facade, model)
    checked(facade)
    KafkaRetry(_wait, addresses=settings.bootstrap_servers).call(log.check)
    serve(facade, model, log, changes, pipeline, about_database(settings))


def _wait(seconds: float) -> bool:
    """Wait; a signal ends the process, as nothing is being served yet."""
    time.sleep(seconds)
    return False


def listen(settings: FacadeSettings) -> socket.socket:
    """Return the socket to serve on; it drops those who do not read. Raises ConfigurationError."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Each connection inherits it. asyncio sets it only where a socket says that it is TCP, as
        # Python's do not by themselves; a stream's events go out one after the other.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            timeout_ms = round(1000 * settings.send_timeout_s)
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, timeout_ms)
        listener.bind((settings.host, settings.port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigurationError(
            f"{settings.host}:{settings.port} cannot be listened on: {error.strerror}; choose "
            "another with --port"
        ) from None
    return listener
