"""`/v1/pipelines`: who executes the database, and whether they agree."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from streamydb.facade.about import About, PipelineMessages
from streamydb.facade.answer import Answer, unkept_json
from streamydb.facade.queries import NoQuery
from streamydb.kafka.digests import ShardDigests
from streamydb.kafka.presence import Seen
from streamydb.local.folder import PipelineStatus
from streamydb.records.gears import GearStatus

if TYPE_CHECKING:
    from streamydb.facade.request import Request

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
    gear: GearStatus | None


class _Report(msgspec.Struct, kw_only=True):
    database: str
    here: list[_Here]
    heard: list[Seen] | None
    digests: list[ShardDigests] | None
    why: list[str]


class PipelineWatch:
    """Asks Kafka when somebody looks; one look at a time.

    A look has a thread of its own, that does not hold up the end of the facade: Kafka may be away.
    Those who wait for it hold no thread: reads would wait behind them.
    """

    def __init__(self, about: About) -> None:
        self._about = about
        self._look: asyncio.Future[None] | None = None
        self._again_s = 0.0
        self._told = PipelineMessages(
            why=[] if about.told is None else ["Kafka has not answered yet"]
        )

    async def report(self, *, whole: bool = True) -> bytes:
        """Return the JSON of what is known now, or was a moment ago; digests if ``whole``."""
        look = self._refresh()
        if not look.done():
            await asyncio.wait([look], timeout=_PATIENCE_S)
        here, messages = await asyncio.to_thread(self._here), self._told
        return msgspec.json.encode(_Report(
            database=self._about.database, here=here, heard=messages.heard,
            digests=messages.digests if whole else None, why=messages.why,
        ))  # fmt: skip

    def _refresh(self) -> asyncio.Future[None]:
        now_s, look = time.monotonic(), self._look
        if look is None or (look.done() and now_s >= self._again_s):
            self._again_s = now_s + _KEPT_S
            loop = asyncio.get_running_loop()
            look = self._look = loop.create_future()
            threading.Thread(target=self._ask, args=[loop, look], daemon=True).start()
        return look

    def _ask(self, loop: asyncio.AbstractEventLoop, look: asyncio.Future[None]) -> None:
        try:
            if self._about.told is not None:
                self._told = self._about.told()
        except Exception as error:  # noqa: BLE001 - the report tells: what was known is old by now
            self._told = PipelineMessages(why=[f"Kafka cannot be asked ({type(error).__name__})"])
        finally:
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(look.set_result, None)

    def _here(self) -> list[_Here]:
        try:
            return [_shown(name, said) for name, said in self._about.here().items()]
        except OSError:
            return []


def _shown(name: str, said: PipelineStatus) -> _Here:
    fields = {field: getattr(said, field) for field in _Here.__struct_fields__ if field != "name"}
    return _Here(**{**fields, "name": name})


async def get_pipelines(request: Request, _: NoQuery) -> Answer:
    """Show the pipelines that execute the database, and their last digests.

    `here` are those that were started on the facade's machine, `heard` those that spoke in
    Kafka in the last half minute, wherever they run. `gear` says which gear of a pipeline leads
    and how far the other one is behind, or the `obstacle`: why it has one. Digests of one shard
    at one seq are alike, or a pipeline is wrong; as they are of the whole state, they are told
    to tokens that may read all. What is null cannot be read; `why` says the reason.
    """
    return unkept_json(await request.console.watch.report(whole=request.client.may_read("")))
