"""`/v1/pipelines`: who executes the database, and whether they agree."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Final

import msgspec
from litestar import Response, get
from litestar.handlers import HTTPRouteHandler

from streamydb.facade.about import About, Told
from streamydb.facade.openapi import answers
from streamydb.facade.services import json_response
from streamydb.kafka.digests import ShardDigests
from streamydb.kafka.presence import Seen
from streamydb.local.folder import PipelineStatus

__all__ = ["PipelineWatch", "pipelines_handler"]

_KEPT_S: Final = 2.0
"""How long a look at Kafka counts."""
_PATIENCE_S: Final = 2.0
"""How long an answer waits for a look."""


class _Here(msgspec.Struct, kw_only=True):
    """A pipeline on the facade's machine; its errors are for those who run it."""

    name: str
    state: str
    role: str | None
    epoch: int | None
    resolved: int | None
    ready: bool | None
    behind: int | None
    lag_ms: int | None
    lag: int | None
    alarm: str | None


class _Report(msgspec.Struct, kw_only=True):
    """The answer."""

    database: str
    here: list[_Here]
    heard: list[Seen] | None
    digests: list[ShardDigests] | None
    why: list[str]


class PipelineWatch:
    """Asks Kafka when somebody looks; one look at a time.

    A look has a thread of its own, that does not hold up the end of the facade: Kafka may be away.
    """

    def __init__(self, about: About) -> None:
        """Know nothing yet."""
        self._about = about
        self._lock = threading.Lock()
        self._look: threading.Thread | None = None
        self._again_s = 0.0
        self._told = Told(why=[] if about.told is None else ["Kafka has not answered yet"])

    async def report(self) -> bytes:
        """Return the JSON of what is known now, or was a moment ago."""
        return await asyncio.to_thread(self._report)

    def _report(self) -> bytes:
        self._refresh().join(_PATIENCE_S)
        told = self._told
        return msgspec.json.encode(_Report(
            database=self._about.database, here=self._here(), heard=told.heard,
            digests=told.digests, why=told.why,
        ))  # fmt: skip

    def _refresh(self) -> threading.Thread:
        """Return the look that is under way, or the last one if that was just now."""
        with self._lock:
            now_s = time.monotonic()
            look = self._look
            if look is None or (not look.is_alive() and now_s >= self._again_s):
                self._again_s = now_s + _KEPT_S
                look = self._look = threading.Thread(target=self._ask, daemon=True)
                look.start()
            return look

    def _ask(self) -> None:
        if self._about.told is not None:
            self._told = self._about.told()

    def _here(self) -> list[_Here]:
        """Read the status files."""
        try:
            return [_shown(name, said) for name, said in self._about.here().items()]
        except OSError:
            return []


def _shown(name: str, said: PipelineStatus) -> _Here:
    fields = {field: getattr(said, field) for field in _Here.__struct_fields__ if field != "name"}
    return _Here(**{**fields, "name": name})


def pipelines_handler(watch: PipelineWatch) -> HTTPRouteHandler:
    """Return the handler of `GET /v1/pipelines`."""

    @get("/v1/pipelines", responses=answers("unauthorized"))
    async def get_pipelines() -> Response[bytes]:
        """Show the pipelines that execute the database, and their last digests.

        `here` are those that were started on the facade's machine, `heard` those that spoke in
        Kafka in the last half minute, wherever they run. Digests of one shard at one seq are alike,
        or a pipeline is wrong. What is null cannot be read; `why` says the reason.
        """
        return json_response(await watch.report(), headers={"Cache-Control": "no-store"})

    return get_pipelines
