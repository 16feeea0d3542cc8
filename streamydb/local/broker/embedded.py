"""One Kafka node (KRaft: broker and controller in one process), started from jars, on 127.0.0.1."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from streamydb.errors import ConfigurationError, StreamyError
from streamydb.kafka.clients import administrator
from streamydb.kafka.errors import KafkaException
from streamydb.local import class_data
from streamydb.local import jars as jar_cache
from streamydb.local.broker import config
from streamydb.local.broker.ports import accepts, authority, free_port, is_free
from streamydb.local.file_lock import file_lock, write_whole
from streamydb.local.java import find_java
from streamydb.local.launcher import Birth, LocalProcess, end, process_of, wait_until
from streamydb.local.own_process import few_arenas

_RECORD = "broker.json"


@dataclass(frozen=True, slots=True)
class BrokerRecord:
    """A started broker.

    Attributes:
        pid: its process id, which is its process group's id too.
        created: when that process was created, in seconds since 1970, as psutil tells it.
        bootstrap: the address for clients, "127.0.0.1:<port>".
        log: its log file.
        since_boot: when the process was created, as `Birth` has it.
    """

    pid: int
    created: float
    bootstrap: str
    log: str
    since_boot: str = ""

    @property
    def birth(self) -> Birth:
        return Birth(self.created, self.since_boot)


def write_record(home: Path, record: BrokerRecord) -> None:
    write_whole(home / _RECORD, json.dumps(asdict(record), indent=1).encode() + b"\n")


def read_record(home: Path) -> BrokerRecord | None:
    """Return the record of `home`, None if there is none or it cannot be read."""
    try:
        return BrokerRecord(**json.loads((home / _RECORD).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def remove_record(home: Path) -> None:
    (home / _RECORD).unlink(missing_ok=True)


_MAIN = "kafka.Kafka"
_FORMAT = "kafka.tools.StorageTool"
_START_ATTEMPTS_MAX = 3


class BrokerError(StreamyError):
    """The embedded broker did not start or ended by itself; the message names its log."""


class EmbeddedBroker:
    """A single-node Kafka under `<home>/broker`; its topics survive stops, kills and restarts.

        with EmbeddedBroker(tmp_path) as broker:
            Producer({"bootstrap.servers": broker.bootstrap})

    The broker has a process group of its own, so a Ctrl-C at the terminal does not reach it.

    Args:
        home: the data folder; everything of the broker lies in `<home>/broker`.
        port: the port for clients. When None: the port that this home had before, else a free one.
        host: the address at which this machine reaches it, if `properties` have it listen there.
        properties: Kafka properties that win over the built-in ones.
        heap_mb: the JVM's largest heap.
        jars: the class path; the cached jars of `ivy.xml` (fetched when need be) if None.
        start_timeout_s: how long `start` waits for the broker to answer.
        client: how a client connects to it, beside the address, when `properties` demand more.
        identity: 16 bytes, the id of the cluster that a new home belongs to; by default one of its
            own. The brokers of a cluster have one.
    """

    def __init__(
        self,
        home: Path,
        *,
        port: int | None = None,
        host: str = "127.0.0.1",
        properties: Mapping[str, str] | None = None,
        heap_mb: int = config.HEAP_MB_DEFAULT,
        jars: Sequence[Path] | None = None,
        start_timeout_s: float = config.START_S_DEFAULT,
        client: Mapping[str, str] | None = None,
        identity: bytes | None = None,
    ) -> None:
        self.home = Path(home)
        self.properties = dict(properties or {})
        self._folder = self.home.resolve() / "broker"
        self._temporary = self._folder / "tmp"
        self._host = host
        self._wanted_port = port
        self._port = port or self._earlier_port()
        self._heap_mb = heap_mb
        self._jars = list(jars) if jars is not None else None
        self._start_timeout_s = start_timeout_s
        self._client = dict(client or {})
        self._identity = identity
        self._process: LocalProcess | None = None

    @property
    def port(self) -> int:
        """The port for clients; 0 before the first start of a home without `port`."""
        return self._port

    @property
    def bootstrap(self) -> str:
        """The address for clients on this machine, "127.0.0.1:<port>" by default."""
        return authority(self._host, self._port)

    @property
    def client(self) -> dict[str, str]:
        """Connection settings of a client of this broker, for confluent-kafka."""
        return {"bootstrap.servers": self.bootstrap, **self._client}

    @property
    def log_file(self) -> Path:
        """The broker's log; what the JVM itself prints is in `console.log` beside it."""
        return self._folder / "server.log"

    @property
    def alive(self) -> bool:
        """True if the process that this object started is running."""
        return self._process is not None and self._process.alive

    @property
    def record(self) -> BrokerRecord:
        """The facts by which another process finds this broker.
        Raises BrokerError: the broker is not running.
        """
        if self._process is None or not self.alive:
            msg = f"The broker of {self.home} is not running."
            raise BrokerError(msg)
        process = self._process
        created_s, since_boot = process.birth
        log = str(self.log_file)
        return BrokerRecord(process.pid, created_s, self.bootstrap, log, since_boot)

    def start(self, launched: Callable[[BrokerRecord], None] = lambda _: None) -> Self:
        """Start the broker and wait until it answers a client; does nothing when it runs already.

        ``launched``: is told of its process at once, before it answers.
        Raises BrokerError: it ended, or did not answer in time; JarsError: its jars could not be
        fetched; JavaError: no usable Java.
        """
        if self.alive:
            return self
        self._folder.mkdir(parents=True, exist_ok=True)
        for attempt in range(1, _START_ATTEMPTS_MAX + 1):
            self._choose_port()
            self._write_configuration()
            self._format_storage()
            self._launch()
            try:
                self._tell(launched)
                self._wait_until_ready()
            except BrokerError:
                self.kill()
                if attempt == _START_ATTEMPTS_MAX or not self._port_was_taken():
                    raise
            except BaseException:
                self.kill()
                raise
            else:
                break
        return self

    def stop(self, timeout_s: float = 30.0) -> None:
        """End the broker gracefully, after `timeout_s` seconds by SIGKILL; harmless when ended."""
        if self._process is not None:
            self._process.stop(timeout_s)
            self._process = None

    def kill(self) -> None:
        """Kill the broker at once (SIGKILL), as a crash of the machine's process would."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def release(self) -> BrokerRecord:
        """Give the running broker up: it goes on after this process, known by the record returned.
        Raises BrokerError: the broker is not running.
        """
        record = self.record
        if self._process is not None:
            self._process.release()
            self._process = None
        return record

    def restart(self) -> Self:
        """Stop gracefully and start again, on the same data and the same port."""
        self.stop()
        return self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def _earlier_port(self) -> int:
        try:
            text = (self._folder / "server.properties").read_text(encoding="utf-8")
            known = config.parse_properties(text)
        except (OSError, ConfigurationError):
            return 0
        address = known.get("advertised.listeners", "")
        return int(address.rpartition(":")[2] or 0)

    def _choose_port(self) -> None:
        if self._port and is_free(self._port, self._host):
            return
        if self._wanted_port:
            msg = (
                f"Port {self._wanted_port} on {self._host} is taken by another process. "
                "End that process, or start the broker on another port (--port)."
            )
            raise BrokerError(msg)
        self._port = free_port(self._host)

    def _write_configuration(self) -> None:
        text = config.server_properties(
            self._folder / "data", self._port, free_port(besides=self._port), self.properties,
            heap_mb=self._heap_mb,
        )  # fmt: skip
        properties = self._folder / "server.properties"
        properties.touch()
        properties.chmod(0o600)  # what the caller adds may hold passwords
        properties.write_text(text, encoding="utf-8")
        logging = config.log4j_configuration(self.log_file)
        (self._folder / "log4j2.xml").write_text(logging, encoding="utf-8")

    def _java(self, main: str, *arguments: str) -> list[str]:
        if self._jars is None:
            self._jars = jar_cache.resolve("broker")
        options = config.jvm_options(self._heap_mb, self._folder / "log4j2.xml")
        if main == _MAIN:
            options += [f"-Djava.io.tmpdir={self._temporary}"]
            options += class_data.java_options("broker", self._jars)
        path = jar_cache.class_path(self._jars)
        return [str(find_java().path), *options, "-cp", path, main, *arguments]

    def _format_storage(self) -> None:
        if (self._folder / "data" / "meta.properties").is_file():
            return
        cluster = config.cluster_id(self._identity or uuid.uuid4().bytes)
        arguments = ["--cluster-id", cluster, "--config", str(self._folder / "server.properties")]
        done = subprocess.run(
            self._java(_FORMAT, "format", "--ignore-formatted", *arguments),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            lines = (done.stdout + done.stderr).splitlines()
            said = "\n".join(line for line in lines if not line.startswith("\t"))[-2000:]
            msg = f"Could not format the broker's storage {self._folder / 'data'}: {said}"
            raise BrokerError(msg)

    def _launch(self) -> None:
        self.log_file.write_bytes(b"")
        shutil.rmtree(self._temporary, ignore_errors=True)  # a kill leaves libraries there
        self._temporary.mkdir(exist_ok=True)
        command = self._java(_MAIN, str(self._folder / "server.properties"))
        console = self._folder / "console.log"
        self._process = LocalProcess(
            "broker", command, console, folder=self._folder, environment=few_arenas()
        )

    def _tell(self, launched: Callable[[BrokerRecord], None]) -> None:
        if self.alive:
            launched(self.record)

    def _wait_until_ready(self) -> None:
        in_time = wait_until(lambda: not self.alive or self._answers(), self._start_timeout_s)
        if not self.alive:
            raise BrokerError(self._failure("ended while starting"))
        if not in_time:
            raise BrokerError(self._failure(f"did not answer within {self._start_timeout_s:.0f} s"))

    def _answers(self) -> bool:
        return accepts(self._port, self._host) and answers(self.client, timeout_s=2.0)

    def _logged(self) -> list[str]:
        lines: list[str] = []
        for name in ("console.log", "server.log"):
            file = self._folder / name
            if file.is_file():
                lines += file.read_text(encoding="utf-8", errors="replace").splitlines()
        return lines

    def _port_was_taken(self) -> bool:
        taken = any("Address already in use" in line for line in self._logged())
        if taken and not self._wanted_port:
            self._port = 0
        return taken and not self._wanted_port

    def _failure(self, what: str) -> str:
        lines = self._logged()
        telling = [line for line in lines if re.search(r" (ERROR|FATAL) |Error:|Exception:", line)]
        log_end = "\n".join(f"  {line[:300]}" for line in (telling or lines)[-8:])
        return (
            f"The embedded broker {what} ({self.bootstrap}). Its log is {self.log_file}; it ends:\n"
            f"{log_end}\nIs the disk full, or does another broker use {self._folder}?"
        )


def answers(bootstrap: str | Mapping[str, str], *, timeout_s: float = 5.0) -> bool:
    """Tell whether a broker answers a metadata request within `timeout_s` s.

    ``bootstrap``: its address, or the connection settings of a client.
    """
    client_config = {"bootstrap.servers": bootstrap} if isinstance(bootstrap, str) else bootstrap
    client = administrator(client_config)
    try:
        return len(client.list_topics(timeout=timeout_s).brokers) > 0
    except KafkaException:
        return False


def find_broker(home: Path) -> BrokerRecord | None:
    """Return the record of the broker that runs on `home`, None if none runs."""
    record = read_record(home)
    if record is None or process_of(record.pid, record.birth) is None:
        return None
    return record


def start_detached(
    home: Path,
    *,
    port: int | None = None,
    properties: Mapping[str, str] | None = None,
    heap_mb: int = config.HEAP_MB_DEFAULT,
) -> BrokerRecord:
    """Start a broker on `home` that outlives this process, or return the one that runs already.

    Its record is there before it answers: if this process is killed meanwhile, the next finds it,
    and starts no second one on the same data.
    Raises BrokerError: it did not start, or one runs there on another port than `port`; OSError:
    its record cannot be written; then it does not run.
    """
    with file_lock(home / "broker.lock"):
        running = find_broker(home)
        if running is not None:
            if port and running.bootstrap != f"127.0.0.1:{port}":
                msg = (
                    f"The broker of {home} runs on {running.bootstrap}, not on port {port}. "
                    "Stop it first (`streamydb down`), or leave the port away."
                )
                raise BrokerError(msg)
            return _awaited(home, running)
        remove_record(home)
        broker = EmbeddedBroker(home, port=port, properties=properties, heap_mb=heap_mb)
        try:
            return broker.start(lambda record: write_record(home, record)).release()
        except BaseException:  # it does not run
            remove_record(home)
            raise


def _awaited(home: Path, running: BrokerRecord) -> BrokerRecord:
    """Return a broker that runs, once it listens: who has started it may have been killed since.
    Raises BrokerError: it ended, or does not listen in time.
    """
    port = int(running.bootstrap.rpartition(":")[2])
    wait_until(lambda: accepts(port) or find_broker(home) is None, config.START_S_DEFAULT)
    if accepts(port):
        return running
    raise BrokerError(
        f"The broker of {home} (process {running.pid}) does not listen at {running.bootstrap}. Its "
        f"log is {running.log}; `streamydb down` stops it"
    )


def stop_detached(home: Path, *, timeout_s: float = 30.0) -> bool:
    """Stop the broker of `home` (SIGTERM, then SIGKILL); False if none was running."""
    with file_lock(home / "broker.lock"):
        record = read_record(home)
        stopped = record is not None and end("broker", record.pid, record.birth, timeout_s)
        remove_record(home)
        return stopped
