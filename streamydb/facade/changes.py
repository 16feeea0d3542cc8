"""`/v1/changes`: the changes as server-sent events (WHATWG HTML, section 9.2).

Only the last change of a transaction carries an id, its seq. A client that loses the connection
within a transaction thus gets the whole of it again when it comes back with `Last-Event-ID`.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Final

import msgspec

from streamydb.facade.answer import EventStream
from streamydb.facade.auth import ANYBODY, Caller
from streamydb.facade.feed import ChangeFilter, Feed, change_filter, visible_changes
from streamydb.facade.generations import require_generation, with_generation
from streamydb.facade.headers import last_event_id
from streamydb.facade.ports import ChangeEvent
from streamydb.facade.problems import ProblemError, problem_body
from streamydb.facade.queries import ChangesQuery
from streamydb.facade.request import FacadeRequest
from streamydb.records.generation import FIRST
from streamydb.records.ranges import ScanRange

_CHUNK_BYTES: Final = 65_536
_BEGIN: Final = b"retry: 1000\n\n"
_HEARTBEAT: Final = b": heartbeat\n\n"


async def get_changes(request: FacadeRequest, query: ChangesQuery) -> EventStream:
    """Follow the changes: events `change` in order, and now and then `resolved`.

    The id of an event is the seq up to which everything has been given; `Last-Event-ID` goes on
    after it. A comment is a heartbeat. An event `error` holds a problem and ends the stream.
    The place of a change in its transaction counts those changes that the token may read.
    """
    services = request.services
    keys = ScanRange(query.prefix or "", query.start, query.end)
    selection = change_filter(keys, query.where, query.where_before)
    generation = services.model.generation
    resumed, generation_read = last_event_id(request.headers) or (None, FIRST)
    if resumed and (generation_read != FIRST or request.generation is None):
        require_generation(generation_read, generation)
    await services.feed.start()
    position = resumed if resumed is not None else query.since
    if position is None:
        position = services.model.latest().seq
    else:
        await services.reader.admit(position, "since" if resumed is None else "Last-Event-ID")
    services.feed.admit(position)
    request.closing.enter_context(services.streams.enter(request.client_name))
    heartbeat_s = services.settings.heartbeat_s
    return EventStream(
        events(services.feed, position, selection, heartbeat_s, request.client, generation)
    )


async def events(
    feed: Feed,
    since: int,
    selection: ChangeFilter,
    heartbeat_s: float,
    caller: Caller = ANYBODY,
    generation: str = FIRST,
) -> AsyncGenerator[bytes, None]:
    """Yield the bytes of an event stream: a `resolved`, else a heartbeat, at least every pause."""
    yield _BEGIN
    resolved = shown = since
    sent_s = time.monotonic()
    whole = caller.may_read("")
    try:
        async with aclosing(feed.batches(since, heartbeat_s)) as batches:
            async for batch in batches:
                if batch is not None:
                    resolved = batch.resolved
                    readable = (
                        batch.changes if whole else visible_changes(batch.changes, caller.may_read)
                    )
                    visible = list(filter(selection.takes, readable))
                    for chunk in _chunks(visible, generation):
                        yield chunk
                        shown, sent_s = visible[-1].seq, time.monotonic()
                if batch is None or time.monotonic() - sent_s >= heartbeat_s:
                    yield _resolved(resolved, generation) if resolved > shown else _HEARTBEAT
                    shown, sent_s = resolved, time.monotonic()
    except ProblemError as error:
        yield b"event: error\ndata: " + problem_body(error) + b"\n\n"


def _chunks(events: list[ChangeEvent], generation: str) -> Iterator[bytes]:
    chunk = bytearray()
    for event, following in zip(events, [*events, None][1:], strict=True):
        if following is None or following.seq != event.seq:
            chunk += b"id: %b\n" % _id(event.seq, generation)
        chunk += b"event: change\ndata: " + event.data + b"\n\n"
        if len(chunk) > _CHUNK_BYTES:
            yield bytes(chunk)
            chunk.clear()
    if chunk:
        yield bytes(chunk)


def _id(seq: int, generation: str) -> bytes:
    return with_generation(str(seq), generation).encode()


def _resolved(seq: int, generation: str) -> bytes:
    data = msgspec.json.encode({"resolved": seq})
    return b"id: %b\nevent: resolved\ndata: %b\n\n" % (_id(seq, generation), data)
