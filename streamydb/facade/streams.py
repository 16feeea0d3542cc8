"""`/v1/streams/{name}`: what procedures emitted to a stream, page by page."""

from __future__ import annotations

import math
from typing import Final

import msgspec

from streamydb.errors import StreamyError
from streamydb.facade.answer import Answer, unkept_json
from streamydb.facade.cursors import decode_cursor, encode_cursor, foreign_cursor
from streamydb.facade.ports import PageBounds
from streamydb.facade.problems import ProblemError
from streamydb.facade.queries import StreamQuery
from streamydb.facade.reads import ReadPoint
from streamydb.facade.request import Request
from streamydb.facade.services import Services
from streamydb.facade.stream_pages import EmittedPage, StreamPosition
from streamydb.limits import INTEGER_MAX
from streamydb.records import module_key
from streamydb.records.emission import is_stream

_GIVER: Final = "this stream"


async def get_stream(request: Request, query: StreamQuery) -> Answer:
    """Read a stream: the records that procedures emitted to it, in order, from the beginning.

    `cursor` goes on where the last answer ended. With `wait`, an answer without records comes only
    when there were none for so long.
    """
    if query.cursor is not None and query.after is not None:
        detail = "A cursor says where to begin; leave out `after`."
        raise ProblemError("invalid-parameter", detail, parameters=["after"])
    body = await stream_page(
        request.services, request.text, request.client_name, query.cursor, query.after,
        query.limit, query.wait,
    )  # fmt: skip
    return unkept_json(body)


async def stream_page(
    services: Services,
    name: str,
    client: str,
    cursor: str | None,
    after: str | None,
    limit: int,
    wait_s: float,
    patience_s: float = math.inf,
) -> bytes:
    """Return the answer to a reader of a stream.

    ``client``: the name by which the reader is counted. ``after``: `seq` or `seq.index` after which
    the first page begins. ``patience_s``: how long each look at Kafka and the read model may take,
    if that is less than the settings say.

    Raises:
        ProblemError: no-such-stream, invalid-parameter, too-many-requests, overloaded.
        KafkaUnavailableError: Kafka does not answer.
    """
    position, ts_ms = StreamPosition(name), 0
    if cursor is not None:
        position = decode_cursor(cursor, StreamPosition, _GIVER, services.model.generation)
        if position.stream != name:
            raise foreign_cursor(_GIVER)
    else:
        await _must_exist(services, name, patience_s)
        if after is not None:
            position = _after(name, after)
            ts_ms = _time_of(services, position.seq)
    settings = services.settings
    bounds = PageBounds(
        min(limit, settings.page_entries_max), settings.answer_bytes_max,
        min(patience_s, settings.read_timeout_s),
    )  # fmt: skip
    wait_s = min(wait_s, settings.heartbeat_s)
    if not wait_s:
        page = await services.emitted.page(position, bounds, 0, ts_ms)
    else:
        with services.streams.enter(client):
            page = await services.emitted.page(position, bounds, wait_s, ts_ms)
    return _body(page, services.model.generation)


async def _must_exist(services: Services, name: str, wait_s: float) -> None:
    """Refuse a name that is no stream's, or whose module was never deployed."""
    if is_stream(name):
        strong = ReadPoint(consistency="strong")
        with await services.reader.snapshot(strong, wait_s) as snapshot:
            if snapshot.get(module_key(name.partition(".")[0])) is not None:
                return
    detail = "A stream is module.stream, of a module that is deployed; this is none."
    raise ProblemError("no-such-stream", detail)


def _after(name: str, text: str) -> StreamPosition:
    seq, _, index = text.partition(".")
    position = StreamPosition(name, int(seq), int(index) if index else INTEGER_MAX)
    if max(position.seq, position.index) > INTEGER_MAX:
        raise ProblemError("invalid-parameter", "There is no such place.", parameters=["after"])
    return position


def _time_of(services: Services, seq: int) -> int:
    try:
        with services.model.snapshot(seq) as snapshot:
            return snapshot.ts_ms
    except StreamyError:
        return 0


def _body(page: EmittedPage, generation: str) -> bytes:
    records = [msgspec.Raw(value) for value in page.values]
    cursor = encode_cursor(page.place, generation)
    return msgspec.json.encode({"records": records, "more": page.more, "cursor": cursor})
