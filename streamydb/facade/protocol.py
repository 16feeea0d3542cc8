"""HTTP/1.1 by httptools, where it is installed: a compiled parser with the bounds of uvicorn's h11.

uvicorn's own protocol for httptools bounds nothing that it holds before a request is whole, takes
requests with several hosts, makes headers of trailers, and cuts a fragment off a target, so that
`GET /v1/kv/a#b` would read another key than was sent. This one does what uvicorn's does with h11.
"""

from __future__ import annotations

from typing import Any, ClassVar, cast
from urllib.parse import unquote

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["BoundedHttpTools", "bounded"]


class BoundedHttpTools(HttpToolsProtocol):
    """A connection; what of a request is not whole yet has at most `incomplete_bytes_max` bytes.

    Attributes:
        incomplete_bytes_max: of a target with all headers, of a chunk's head, or of trailers.
    """

    incomplete_bytes_max: ClassVar[int] = 65_536
    _incomplete = 0
    _in_head = True

    def data_received(self, data: bytes) -> None:
        """Take bytes; too many of them without a whole part of a request are malformed."""
        self._incomplete += len(data)
        super().data_received(data)
        if self._incomplete > self.incomplete_bytes_max and not self.transport.is_closing():
            self.send_400_response("A request line, headers or trailers are too long.")

    def on_message_begin(self) -> None:
        """A request begins."""
        self._in_head = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; what comes after the body is none."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Refuse what h11 refuses; begin to answer the request."""
        self._incomplete, self._in_head = 0, False
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (hosts == 0 and self._wants_host()):
            raise ValueError("not one host")
        super().on_headers_complete()
        if b"#" in self.url:
            raw, _, query = self.url.partition(b"?")
            scope = {"raw_path": raw, "path": unquote(raw.decode("ascii")), "query_string": query}
            cast("dict[str, Any]", self.scope).update(scope)

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._incomplete = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._incomplete = 0
        super().on_message_complete()

    def _wants_host(self) -> bool:
        return bool(self.parser.get_http_version() == "1.1")


def bounded(incomplete_bytes_max: int) -> type[Any]:
    """Return the protocol with a bound."""
    return type("Bounded", (BoundedHttpTools,), {"incomplete_bytes_max": incomplete_bytes_max})
