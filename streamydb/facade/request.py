"""A request on its way through the facade."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, NamedTuple

from streamydb.facade.answer import Sender
from streamydb.facade.asgi import Headers, Receive, Scope
from streamydb.facade.auth import ANYBODY, Caller
from streamydb.facade.problems import ProblemError
from streamydb.facade.request_target import key_of, text_of

if TYPE_CHECKING:
    from streamydb.facade.console import Console
    from streamydb.facade.services import Services

_SINGLE: Final = ("Idempotency-Key", "Deadline-Ms", "Last-Event-ID")


class Peer(NamedTuple):
    """The sender of a request: address, present generation if it says it; `foreign`: for another
    host.
    """

    address: str
    generation: str | None
    foreign: bool


class FacadeRequest:
    """A request, with all that its endpoint needs.

    Attributes:
        fields: its headers as they came, names in small letters.
        query: its query string, still escaped.
        name: the rest of the path after its endpoint's, still escaped.
        client: the sender; ANYBODY until its token was looked at.
        closing: undoes what was begun when the request ends, however it ends.
    """

    def __init__(
        self,
        services: Services,
        console: Console,
        scope: Scope,
        receive: Receive,
        sender: Sender,
        peer: Peer,
    ) -> None:
        self.services = services
        self.console = console
        self.fields: Headers = scope["headers"]
        self.query: bytes = scope["query_string"]
        self.receive = receive
        self.sender = sender
        self.address, self.generation, self.foreign = peer
        self.name: bytes = b""
        self.client: Caller = ANYBODY
        self.closing = ExitStack()
        self._key: str | None = None
        self._headers: dict[str, str] | None = None

    @property
    def client_name(self) -> str:
        """The name by which the client is counted: its token's, else its address."""
        return self.address if self.client is ANYBODY else f"token {self.client.name}"

    @property
    def text(self) -> str:
        """The name in the path; empty if it is no text in UTF-8."""
        return text_of(self.name) or ""

    @property
    def key(self) -> str:
        """The key in the path. Raises ProblemError: invalid-key."""
        if self._key is None:
            self._key = key_of(self.name)
        return self._key

    @property
    def headers(self) -> dict[str, str]:
        """The headers by name; those that were sent several times are joined.
        Raises ProblemError: invalid-parameter, if one of which there can be one was sent several
        times.
        """
        if self._headers is None:
            headers: dict[str, str] = {}
            repeated: set[str] = set()
            for field, content in self.fields:
                name, value = field.decode("latin-1"), content.decode("latin-1")
                if name in headers:
                    repeated.add(name)
                    value = f"{headers[name]}, {value}"
                headers[name] = value
            again = [name for name in _SINGLE if name.lower() in repeated]
            if again:
                detail = f"The header {again[0]} was sent several times."
                raise ProblemError("invalid-parameter", detail, parameters=again)
            self._headers = headers
        return self._headers
