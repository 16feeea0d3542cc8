"""PostgreSQL as a peer: each request is one statement in a transaction of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import asyncpg
import msgspec

from bench.rest.peers import Row

__all__ = ["SCHEMA", "PostgresqlStore"]

SCHEMA: Final = """
CREATE TABLE kv (key text COLLATE "C" PRIMARY KEY, value text NOT NULL, version bigint NOT NULL)
"""
"""The table; keys are in the order of their bytes, as in the facade."""

_CONNECTIONS: Final = 32
_RETRIES_MAX: Final = 100
_GET: Final = "SELECT value, version FROM kv WHERE key = $1"
_READ: Final = "SELECT key, value, version FROM kv WHERE key = ANY($1)"
_SCAN: Final = "SELECT key, value, version FROM kv WHERE key >= $1 ORDER BY key LIMIT $2"
_PUT: Final = """
INSERT INTO kv VALUES ($1, $2, 1)
ON CONFLICT (key) DO UPDATE SET value = excluded.value, version = kv.version + 1 RETURNING version
"""


class PostgresqlStore:
    """Reads at REPEATABLE READ, which is enough for one statement; writes at SERIALIZABLE.

    A write waits for the disk (fsync and synchronous_commit are on, the server's defaults). The
    driver is asyncpg, the fastest that there is for Python.
    """

    def __init__(self, dsn: str) -> None:
        """Connect to `dsn` at `start`."""
        self._dsn = dsn
        self._reading: Any = None
        self._writing: Any = None

    async def start(self) -> None:
        """Connect: as many connections for reads as for writes."""
        self._reading = await self._pool("repeatable read")
        self._writing = await self._pool("serializable")

    async def stop(self) -> None:
        """Close all connections."""
        await self._reading.close()
        await self._writing.close()

    async def get(self, key: str) -> tuple[str, int]:
        """Return a key's value and version."""
        row = await self._reading.fetchrow(_GET, key)
        return row[0], row[1]

    async def read(self, keys: Sequence[str]) -> list[Row]:
        """Return the entries of keys, in one statement and so at one snapshot."""
        return _rows(await self._reading.fetch(_READ, keys))

    async def scan(self, start: str, limit: int) -> list[Row]:
        """Return entries in the order of their keys."""
        return _rows(await self._reading.fetch(_SCAN, start, limit))

    async def put(self, key: str, value: str) -> int:
        """Store a value; tried again when PostgreSQL cannot serialize it."""
        for _ in range(_RETRIES_MAX):
            try:
                return int(await self._writing.fetchval(_PUT, key, value))
            except asyncpg.SerializationError:
                continue
        raise TimeoutError(f"{_RETRIES_MAX} times another write came between")

    async def _pool(self, isolation: str) -> Any:
        settings = {"default_transaction_isolation": isolation}
        return await asyncpg.create_pool(
            self._dsn, min_size=_CONNECTIONS, max_size=_CONNECTIONS, server_settings=settings,
            max_inactive_connection_lifetime=0,
        )  # fmt: skip


def _rows(found: Sequence[Any]) -> list[Row]:
    return [Row(row[0], msgspec.Raw(row[1].encode()), row[2]) for row in found]
