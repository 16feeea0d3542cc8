"""A read model and a facade that are started before their broker."""

from __future__ import annotations

import http.client
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from streamydb.kafka import create
from streamydb.local.broker import EmbeddedBroker
from streamydb.local.broker.ports import free_port
from streamydb.local.launcher import LocalProcess
from streamydb.testing.database import wait_for

pytestmark = pytest.mark.timeout(300)


@contextmanager
def part(log: Path, *words: str) -> Iterator[LocalProcess]:
    """Run a command of ours in the background, with its output in `log`."""
    process = LocalProcess(words[0], [sys.executable, "-m", "streamydb.cli", *words], log)
    try:
        yield process
    finally:
        process.kill()


def _waits(log: Path) -> bool:
    return b"waiting for Kafka" in log.read_bytes()


def is_ready(port: int) -> bool:
    """Whether a facade on this machine says that it is."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health/ready")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


@pytest.mark.fault(
    45, "a read model and a facade are started before their broker", "they wait, say so, and serve"
)
def test_a_read_model_and_a_facade_wait_for_their_broker(
    private_broker: Callable[..., EmbeddedBroker], tmp_path: Path, injected: Callable[[int], None]
) -> None:
    broker = private_broker()
    broker.start()
    create({"bootstrap.servers": broker.bootstrap}, "bank")
    place = ["--database", "bank", "--bootstrap", broker.bootstrap, "--home", str(tmp_path / "h")]
    broker.kill()
    port, logs = free_port(), [tmp_path / "read-model.log", tmp_path / "facade.log"]
    with ExitStack() as stack:
        model = stack.enter_context(part(logs[0], "read-model", *place))
        facade = stack.enter_context(part(logs[1], "serve", "--port", str(port), *place))
        for log in logs:
            wait_for(partial(_waits, log), f"{log.name}", 60)
        assert model.alive
        assert facade.alive
        injected(2)
        broker.start()
        wait_for(lambda: is_ready(port), "the facade to be ready", 90)
        facade.send(signal.SIGTERM)
        model.send(signal.SIGTERM)
        assert (model.wait(30), facade.wait(30)) == (0, 0)
