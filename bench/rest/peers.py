"""Another store behind a server like the facade's: what of a read's time is the store's.

`python -m bench.rest.peers constant|postgresql PORT [DSN]` serves the
facade's paths, as far as the cases need them, with the same framework, server and settings.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol

import msgspec
from litestar import Litestar, Request, Response, get, post, put
from litestar.params import FromPath, FromQuery

from bench.rest.cases import KEYS_READ, SCANNED
from streamydb.facade import FacadeSettings
from streamydb.facade.metrics import FacadeMetrics
from streamydb.facade.server import listen, server_of

__all__ = ["Constant", "PeerStore", "Row", "main", "peer_app"]

_JSON: Final = "application/json"


class Row(msgspec.Struct, gc=False):
    """An entry of an answer."""

    key: str
    value: msgspec.Raw
    version: int


class PeerStore(Protocol):
    """A store that is compared."""

    async def start(self) -> None:
        """Connect."""

    async def stop(self) -> None:
        """End."""

    async def get(self, key: str) -> tuple[str, int]:
        """Return a key's value (JSON) and version."""

    async def read(self, keys: Sequence[str]) -> list[Row]:
        """Return the entries of keys at one snapshot."""

    async def scan(self, start: str, limit: int) -> list[Row]:
        """Return entries in the order of their keys."""

    async def put(self, key: str, value: str) -> int:
        """Store a value durably, in a serializable transaction; return its version."""


class Constant:
    """No store: what the server alone costs."""

    def __init__(self) -> None:
        """Make the answers once."""
        value = '"' + "v" * 100 + '"'
        self._value = value
        self._rows = [Row(f"user/{n}", msgspec.Raw(value.encode()), n) for n in range(SCANNED)]

    async def start(self) -> None:
        """Nothing to do."""

    async def stop(self) -> None:
        """Nothing to do."""

    async def get(self, key: str) -> tuple[str, int]:  # noqa: ARG002 - the protocol
        """Return always the same."""
        return self._value, 1

    async def read(self, keys: Sequence[str]) -> list[Row]:  # noqa: ARG002 - the protocol
        """Return always the same."""
        return self._rows[:KEYS_READ]

    async def scan(self, start: str, limit: int) -> list[Row]:  # noqa: ARG002 - the protocol
        """Return always the same."""
        return self._rows

    async def put(self, key: str, value: str) -> int:  # noqa: ARG002 - the protocol
        """Return always the same."""
        return 1


class _Read(msgspec.Struct):
    keys: list[str]


def peer_app(store: PeerStore) -> Litestar:
    """Return the application."""

    @get("/health/live")
    async def live() -> Response[bytes]:
        return Response(b'{"status":"live"}', media_type=_JSON)

    @get("/v1/kv/{key:path}")
    async def get_value(key: FromPath[str]) -> Response[bytes]:
        value, version = await store.get(key[1:])
        return Response(value.encode(), media_type=_JSON, headers={"ETag": f'"{version}"'})

    @put("/v1/kv/{key:path}")
    async def put_value(request: Request[Any, Any, Any], key: FromPath[str]) -> Response[bytes]:
        body = await request.body()
        msgspec.json.decode(body)
        version = await store.put(key[1:], body.decode())
        answer = msgspec.json.encode({"status": "committed", "version": version})
        return Response(answer, media_type=_JSON, headers={"ETag": f'"{version}"'})

    @post("/v1/read", status_code=200)
    async def read_values(request: Request[Any, Any, Any]) -> Response[bytes]:
        body = msgspec.json.decode(await request.body(), type=_Read)
        rows = await store.read(body.keys)
        answer = msgspec.json.encode({"entries": {row.key: row for row in rows}})
        return Response(answer, media_type=_JSON)

    @get("/v1/kv")
    async def list_values(start: FromQuery[str], limit: FromQuery[int]) -> Response[bytes]:
        answer = msgspec.json.encode({"entries": await store.scan(start, limit)})
        return Response(answer, media_type=_JSON)

    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncGenerator[None, None]:
        await store.start()
        try:
            yield
        finally:
            await store.stop()

    return Litestar(
        [live, get_value, put_value, read_values, list_values],
        lifespan=[lifespan], openapi_config=None, logging_config=None, request_max_body_size=None,
    )  # fmt: skip


def main(name: str, port: str, dsn: str = "") -> int:
    """Serve until SIGTERM."""
    store: PeerStore = Constant()
    if name == "postgresql":
        from bench.rest.postgresql_store import PostgresqlStore

        store = PostgresqlStore(dsn)
    settings = FacadeSettings(host="127.0.0.1", port=int(port))
    server = server_of(peer_app(store), settings, FacadeMetrics())
    with listen(settings) as listener:
        server.run(sockets=[listener])
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
