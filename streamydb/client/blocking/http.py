# Written by tools/blocking.py from `awaiting`: change that one.
"""The HTTP transport: httpx, with connections that are kept and reused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from weakref import WeakSet, ref

import httpx

from streamydb.client import connections
from streamydb.client.connections import HttpOptions
from streamydb.client.errors import ConnectionLostError
from streamydb.client.http import (
    EventParser,
    HttpAnswer,
    Tags,
    build,
    check_tag,
    decode,
    encode,
    encode_open,
    raise_for_status,
    wire_of,
)
from streamydb.client.requests import Event, Open, Request
from streamydb.client.session import Generation


class HttpTransport:
    """Performs requests over HTTP; see `Transport`."""

    def __init__(
        self,
        options: HttpOptions,
        transport: httpx.BaseTransport | None = None,
        history: Generation | None = None,
    ) -> None:
        self._history = Generation() if history is None else history
        arguments = options.arguments(network=transport is None)
        self._client = httpx.Client(**arguments, transport=transport)
        self._streams: set[ref[HttpStream]] = set()
        self._tags = Tags()
        self._wires: WeakSet[Any] = WeakSet()

    def send(self, request: Request[Any]) -> Any:
        try:
            sent = build(self._client, encode(request), next(self._tags), self._history)
            answer = self._client.send(sent)
        except httpx.RequestError as error:
            raise connections.fault(error) from error
        except RuntimeError:
            connections.raise_if_closed(self._client)
            raise
        self._take(answer)
        found = HttpAnswer(answer.status_code, answer.headers, answer.content)
        self._history.hear(*found)
        return decode(request, found)

    def open(self, request: Open) -> HttpStream:
        with ExitStack() as stack:
            try:
                tag = next(self._tags)
                sent = build(self._client, encode_open(request), tag, self._history)
                answer = self._client.send(sent, stream=True)
                stack.callback(answer.close)
                self._take(answer)
                if not answer.is_success:
                    answer.read()
            except httpx.RequestError as error:
                raise connections.fault(error) from error
            except RuntimeError:
                connections.raise_if_closed(self._client)
                raise
            body = b"" if answer.is_success else answer.content
            found = HttpAnswer(answer.status_code, answer.headers, body)
            self._history.hear(*found)
            raise_for_status(found)
            stack.pop_all()
        stream = HttpStream(answer)
        self._streams.add(ref(stream, self._streams.discard))
        return stream

    def close(self) -> None:
        for known in tuple(self._streams):
            stream = known()
            if stream is not None:
                stream.close()
        self._client.close()

    def leave(self) -> None:
        """Let go of the connections, in a child of a fork: they are the parent's."""
        connections.abandon(self._wires)

    def _take(self, answer: httpx.Response) -> None:
        """Note the connection that an answer came on; refuse what is none to its request."""
        wire = wire_of(answer)
        if wire is not None:
            self._wires.add(wire)
        check_tag(answer)


class HttpStream:
    """An event stream; see `Stream`."""

    def __init__(self, answer: httpx.Response) -> None:
        self._answer = answer
        self._chunks: Iterator[bytes] = answer.iter_bytes()
        self._parser = EventParser()

    def receive(self) -> list[Event]:
        """Wait for the next bytes; return the events that they complete."""
        try:
            chunk = next(self._chunks, None)
        except (httpx.RequestError, httpx.StreamError) as error:
            raise connections.lost(error) from error
        if chunk is None:
            raise ConnectionLostError("The stream of changes has ended.")
        return self._parser.feed(chunk)

    def close(self) -> None:
        connections.wake(self._answer)
        self._answer.close()
