"""A PostgreSQL server of one's own: a new cluster in a temporary folder, by default without TCP."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil

from bench.errors import BenchError
from bench.rest.cases import KEY_PREFIX
from streamydb.errors import install
from streamydb.local.launcher import LocalProcess, ProcessError

__all__ = ["cluster", "find_programs", "load", "missing"]

_USER: Final = "bench"
_START_S_MAX: Final = 30.0
_STOP_S_MAX: Final = 20.0
_DEBIAN: Final = Path("/usr/lib/postgresql")
_ACCOUNT: Final = "postgres"


def find_programs() -> Path | None:
    """The folder with `initdb` and `postgres`: on the path, or the newest of Debian's."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    folders = [path.parent for path in _DEBIAN.glob("*/bin/initdb")]
    return max(folders, key=lambda folder: float(folder.parent.name), default=None)


def missing() -> str | None:
    """What is missing to compare with PostgreSQL, and how to get it; None if nothing is."""
    if importlib.util.find_spec("asyncpg") is None:
        return f"the package asyncpg is missing: {install('bench')}"
    if find_programs() is None:
        return "PostgreSQL is not installed: apt-get install postgresql"
    if _account() is not None and not _account_exists():
        return f"PostgreSQL does not run as root, and there is no user {_ACCOUNT}"
    return None


@contextmanager
def cluster(schema: str, port: int | None = None) -> Iterator[tuple[str, psutil.Process]]:
    """Run a new cluster with default settings (fsync is on); yield data source name and process.

    ``port``: it also listens there, on loopback, and trusts everybody.

    Raises:
        BenchError: it did not start; with the end of its log.
    """
    programs = find_programs()
    if programs is None:
        raise BenchError(missing() or "PostgreSQL is not installed")
    folder = Path(tempfile.mkdtemp(prefix="streamydb-bench-pg-"))
    try:
        _give(folder)
        place = f"host={folder}" if port is None else f"host={folder}&port={port}"
        dsn = f"postgresql://{_USER}@/postgres?{place}"
        _initialise(programs, folder)
        with _server(programs, folder, dsn, port) as server:
            asyncio.run(_execute(dsn, schema))
            yield dsn, psutil.Process(server.pid)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def load(dsn: str, keys: int, value: str) -> None:
    """Put `value` (JSON) under as many keys, and let the planner know."""
    asyncio.run(_load(dsn, keys, value))


async def _load(dsn: str, keys: int, value: str) -> None:
    import asyncpg

    connection = await asyncpg.connect(dsn)
    try:
        rows = ((f"{KEY_PREFIX}{number}", value, 1) for number in range(keys))
        await connection.copy_records_to_table("kv", records=rows)
        await connection.execute("VACUUM ANALYZE kv")
    finally:
        await connection.close()


async def _execute(dsn: str, statement: str) -> None:
    import asyncpg

    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


def _initialise(programs: Path, folder: Path) -> None:
    command = [
        str(programs / "initdb"), "--pgdata", str(folder / "data"), "--username", _USER,
        "--auth", "trust", "--encoding", "UTF8", "--locale", "C", "--no-sync",
    ]  # fmt: skip
    done = subprocess.run(
        command, user=_account(), cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = done.stderr.strip()[-500:]
        hint = "`bench rest --no-peers`, or `bench bank` without --beside, leaves PostgreSQL out"
        raise BenchError(f"initdb failed: {said}\n{hint}")


@contextmanager
def _server(programs: Path, folder: Path, dsn: str, port: int | None) -> Iterator[LocalProcess]:
    """Run the server until the block ends."""
    tcp = "listen_addresses=" if port is None else "listen_addresses=127.0.0.1"
    listens = [tcp] if port is None else [tcp, "-p", str(port)]
    command = [
        str(programs / "postgres"), "-D", str(folder / "data"), "-k", str(folder), "-c", *listens,
    ]  # fmt: skip
    server = LocalProcess("PostgreSQL", command, folder / "log", folder=folder, user=_account())
    try:
        server.wait_until(lambda: _answers(dsn), _START_S_MAX)
        yield server
    except ProcessError as error:
        raise BenchError(str(error)) from error
    finally:
        server.stop(_STOP_S_MAX, signal.SIGINT)  # its fast shutdown


def _answers(dsn: str) -> bool:
    import asyncpg

    try:
        asyncio.run(_execute(dsn, "SELECT 1"))
    except (OSError, asyncpg.PostgresError):
        return False
    return True


def _account() -> str | None:
    """Whom the server runs as: PostgreSQL refuses to run as root."""
    return _ACCOUNT if os.geteuid() == 0 else None


def _account_exists() -> bool:
    import pwd

    try:
        pwd.getpwnam(_ACCOUNT)
    except KeyError:
        return False
    return True


def _give(folder: Path) -> None:
    account = _account()
    if account is not None:
        shutil.chown(folder, account)
