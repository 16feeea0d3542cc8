"""HTTP/1.1 by httptools, where it is installed: a compiled parser with the bounds of uvicorn's h11.

uvicorn's own protocol for httptools bounds nothing that it holds before a request is whole, takes
requests with several hosts or with a transfer coding that nobody undoes, makes headers of trailers,
takes targets apart otherwise than with h11 does, so that `GET /v1/kv/a#b` would read another key
than was sent, sends chunks to clients of HTTP/1.0, and loses the body of a request that offers to
upgrade the connection, as those of Java's client do. This one does what uvicorn's does with h11.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from streamydb.facade.connections import Bounded, Plain
from streamydb.facade.request_target import check_frame, place_target, with_host

__all__ = ["Fast"]


class _ToTheEnd(int):
    """The length of an answer that ends with its connection: nothing is longer or shorter."""

    def __lt__(self, other: object) -> bool:
        """Bound nothing."""
        return False

    def __sub__(self, other: object) -> _ToTheEnd:
        """Stay the same, whatever was sent of it."""
        return self

    def __ne__(self, other: object) -> bool:
        """Await nothing more."""
        return False

    __hash__ = None  # type: ignore[assignment]


_UNBOUNDED: Final = _ToTheEnd()


class _Strict(HttpToolsProtocol):
    """A connection; of a request that is not whole it holds a bounded number of bytes.

    Attributes:
        plain: serves those who offer an upgrade.
    """

    plain: ClassVar[type[Plain]]
    incomplete_bytes_max = 65_536
    _incomplete = 0
    _in_head = True
    _begun = False

    def data_received(self, data: bytes) -> None:
        """Take bytes; too many of them without a whole part of a request are malformed."""
        self._incomplete += len(data)
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self.hand_over(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
        else:
            if self._incomplete > self.incomplete_bytes_max and not self.transport.is_closing():
                self.send_400_response("A request line, headers or trailers are too long.")

    def on_message_begin(self) -> None:
        """Take the first byte of a request."""
        self._begun = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; what comes after the body is none."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Refuse what h11 refuses; begin to answer the request."""
        self._incomplete, self._in_head, self._begun = 0, False, False
        version = self.parser.get_http_version().encode()
        check_frame(version, self.headers)
        target = dict[str, Any]()
        authority = place_target(target, self.parser.get_method(), self.url)
        if self.parser.should_upgrade():
            return
        if authority is not None:
            self.headers[:] = with_host(self.headers, authority)
        sent, self.url = self.url, b"/"  # uvicorn takes targets apart in another way
        super().on_headers_complete()
        self.url = sent
        cast("dict[str, Any]", self.scope).update(target)
        if version == b"1.0":
            self.cycle.chunked_encoding = False
            self.cycle.expected_content_length = _UNBOUNDED

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._incomplete = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._incomplete, self._in_head = 0, True
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def hand_over(self, rest: bytes) -> None:
        """Let h11 serve a client that offers another protocol: httptools takes no body then."""
        if self.is_answering():
            self.send_400_response("An upgrade cannot be offered in a pipeline.")
            return
        line = self.parser.get_method() + b" " + self.url + b" HTTP/"
        head = [line + self.parser.get_http_version().encode()]
        head += [name + b": " + value for name, value in self.headers]
        other = self.plain(
            config=self.config, server_state=self.server_state, app_state=self.app_state
        )
        self.connections.discard(self)
        self.transport.set_protocol(other)
        other.connection_made(self.transport)
        other.data_received(b"\r\n".join([*head, b"", b""]) + rest)

    def is_answering(self) -> bool:
        """Tell whether an answer is not complete."""
        return self.cycle is not None and not self.cycle.response_complete


class Fast(Bounded, _Strict):  # type: ignore[misc]  # at run time it has one protocol only
    """A connection whose requests httptools parses."""

    def begins(self) -> bool:
        """Tell whether a request is awaited, or its head is not whole."""
        return self._in_head and not self.is_answering()

    def has_begun(self) -> bool:
        """Tell whether a part of a request's head is there."""
        return self._begun and self.begins()

    def hand_over(self, rest: bytes) -> None:
        """Give the place to the connection that goes on."""
        if not self.is_answering():
            self.leave()
            self.over = True
        super().hand_over(rest)
