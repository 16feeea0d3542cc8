"""A real database with read models and facades in processes of their own, to be killed at will."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import httpx
import psutil

from histories.campaign import STOP
from streamydb.local.broker import free_port
from streamydb.local.launcher import LocalProcess
from streamydb.testing.database import Database, TestingError, wait_for


class Process:
    """A process with its own log, which may be killed and started again."""

    def __init__(
        self, name: str, folder: Path, command: list[str], environment: Mapping[str, str]
    ) -> None:
        self.name = name
        self.log_file = folder / f"{name}.log"
        self._command = command
        self._environment = environment
        self._process: LocalProcess | None = None

    def start(self) -> None:
        self._process = LocalProcess(
            self.name, self._command, self.log_file, environment=self._environment, append=True
        )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} does not run"
        return self._process.pid

    @property
    def rss_bytes(self) -> int:
        return int(psutil.Process(self.pid).memory_info().rss)

    @property
    def exit_code(self) -> int | None:
        return None if self._process is None else self._process.exit_code


class Served(Database):
    """A database with facades, each with a read model of its own.

    `environment` has settings of the facades (STREAMYDB_SERVE_...).
    """

    def __init__(
        self, folder: Path, *, facades: int = 2, environment: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(folder, **options)
        self._count = facades
        self._environment = dict(environment or {})
        self.read_models: list[Process] = []
        self.facades: list[Process] = []
        self.urls: list[str] = []

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            for number in range(self._count):
                self._add(number)
            for number in range(self._count):
                self.wait_ready(number)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for process in (*self.facades, *self.read_models):
            process.kill()
        super().__exit__(*error)

    def _add(self, number: int) -> None:
        port, model = free_port(), str(self.folder / f"read-model-{number}")
        place = ["--database", self.name, "--bootstrap", self.broker.bootstrap, "--folder", model]
        follow = [sys.executable, "-m", "streamydb.cli", "read-model", *place]
        home = str(self.folder / "home")
        serve = [
            sys.executable, "-m", "streamydb.cli", "serve", *place, "--home", home,
            "--port", str(port),
        ]  # fmt: skip
        self.read_models.append(Process(f"read-model-{number}", self.folder, follow, {}))
        self.facades.append(Process(f"facade-{number}", self.folder, serve, self._environment))
        self.urls.append(f"http://127.0.0.1:{port}")
        self.read_models[number].start()
        self.facades[number].start()

    def answers(self, number: int, path: str = "/health/ready") -> bool:
        """Whether a facade answers a GET with 200."""
        try:
            return httpx.get(self.urls[number] + path, timeout=15).status_code == 200
        except httpx.TransportError:
            return False

    def wait_ready(self, number: int) -> None:
        facade = self.facades[number]
        wait_for(lambda: facade.exit_code is not None or self.answers(number), "a ready facade", 60)
        if facade.exit_code is not None:
            raise TestingError(f"{facade.name} ended: {facade.log_file.read_text()[-3000:]}")


class Clients:
    """A campaign of clients in a process of its own (`streamydb histories run`)."""

    def __init__(self, db: Served, clients: int = 12, seconds: float = 1200) -> None:
        self.folder = db.folder / "history"
        urls = [word for url in db.urls for word in ("--url", url)]
        command = [
            sys.executable, "-m", "streamydb.cli", "histories", "run", str(self.folder), *urls,
            "--clients", str(clients), "--seconds", str(seconds),
        ]  # fmt: skip
        self.process = Process("clients", db.folder, command, {})

    def done(self) -> int:
        """How many operations had an answer so far."""
        paths = self.folder.glob("clients-*.jsonl")
        return sum(path.read_bytes().count(b'"outcome":"ok"') for path in paths)

    def progressed(self, by: int) -> None:
        """Wait until clients had so many more answers."""
        begun = self.done()
        wait_for(lambda: self._ended() or self.done() >= begun + by, f"{by} more answers")
        assert not self._ended(), self.said()

    def said(self) -> str:
        return self.process.log_file.read_text()

    def _ended(self) -> bool:
        return self.process.exit_code is not None

    def stop(self) -> str:
        """End the campaign; what its checkers said."""
        (self.folder / STOP).touch()
        wait_for(self._ended, "the end of the campaign", 300)
        assert self.process.exit_code == 0, self.said()
        return self.said()


@contextmanager
def clients(db: Served, count: int = 12) -> Iterator[Clients]:
    """Clients under way while the body runs."""
    running = Clients(db, count)
    running.process.start()
    try:
        yield running
    finally:
        running.process.kill()
