"""Server-sent events, as far as the change feed uses them (WHATWG HTML, section 9.2.6)."""

from __future__ import annotations

from typing import Final

import msgspec

from streamydb.client.errors import UnexpectedAnswerError
from streamydb.client.problems import problem
from streamydb.client.requests import Alive, Event, Progress
from streamydb.client.watch_core import decode_event
from streamydb.records.formats import UNREADABLE

_BUFFER_BYTES_MAX: Final = 16_777_216
"""No event of a facade is nearly as long: two values, and what is around them."""


class EventParser:
    """Makes events of the bytes of a stream, however those are cut."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[Event]:
        """Take bytes; return the events that they complete.
        Raises RequestError: the stream says why it ends; UnexpectedAnswerError: it is not a stream
        of changes.
        """
        *blocks, self._rest = (self._rest + chunk).split(b"\n\n")
        if len(self._rest) > _BUFFER_BYTES_MAX:
            raise UnexpectedAnswerError("An event of the stream has no end.", 200)
        events: list[Event] = []
        for block in blocks:
            events += _events(block)
        return events


def _events(block: bytes) -> list[Event]:
    """The events in the lines between two empty ones: a change and the progress with it."""
    fields: dict[bytes, bytes] = {}
    for line in block.split(b"\n"):
        if line.startswith(b":"):
            return [Alive()]
        name, _, value = line.partition(b":")
        fields[name] = value.removeprefix(b" ")
    kind, data = fields.get(b"event"), fields.get(b"data", b"")
    events: list[Event] = []
    try:
        if kind == b"change":
            events.append(decode_event(data))
        elif kind == b"error":
            raise problem_of(data, 0)
        if b"id" in fields:
            events.append(Progress(int(fields[b"id"].partition(b"@")[0])))
    except (*UNREADABLE, ValueError) as fault:
        raise UnexpectedAnswerError("The stream is not one of changes.", 200) from fault
    return events


def problem_of(body: bytes, retry_after_s: float) -> Exception:
    """Return the exception of a problem document (RFC 9457); a `DecodeError` if it is none."""
    fields = msgspec.json.decode(body, type=dict[str, object])
    slug = str(fields.get("type", "")).rpartition("/")[2]
    status, detail = fields.get("status"), fields.get("detail", "")
    known = {"type", "title", "status", "detail"}
    members = {name: value for name, value in fields.items() if name not in known}
    return problem(
        slug, status if isinstance(status, int) else 0, str(detail), retry_after_s, members
    )
