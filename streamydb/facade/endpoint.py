"""A row of the table of endpoints."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from streamydb.facade.answer import Answer, EventStream
from streamydb.facade.queries import ChangesQuery, NoQuery
from streamydb.facade.request import Request
from streamydb.records import CONSTRAINTS_KEY
from streamydb.records.emission import STREAMS_SCOPE

Work: TypeAlias = Literal["read", "write", "other"]
"""The kind of work that the console counts a request as."""


class Access(NamedTuple):
    """The clients that may use an endpoint.

    ``token``: only those with a token, if the facade has tokens. ``check`` raises ProblemError if
    the token has no scope for what the request names.
    """

    token: bool
    check: Callable[[Request, Any], None] | None = None


def _reads_prefix(request: Request, query: ChangesQuery) -> None:
    request.client.must_read(query.prefix or "")


def _reads_stream(request: Request, _: Any) -> None:
    request.client.must_read(STREAMS_SCOPE + request.text)


OPEN: Final = Access(token=False)
"""Everybody."""

TOKEN: Final = Access(token=True)
"""Everybody with a token; scopes are those of the keys that the body or the answer names."""

READS_KEY: Final = Access(True, lambda request, _: request.client.must_read(request.key))
WRITES_KEY: Final = Access(True, lambda request, _: request.client.must_write(request.key))
READS_PREFIX: Final = Access(True, _reads_prefix)
READS_STREAM: Final = Access(True, _reads_stream)
READS_CONSTRAINTS: Final = Access(
    True, lambda request, _: request.client.must_read(CONSTRAINTS_KEY)
)


class Response(NamedTuple):
    """An answer in the OpenAPI document; without a schema it has no body."""

    text: str
    schema: dict[str, Any] | None
    media_type: str = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A method of a path.

    Attributes:
        method: as it is sent; HEAD goes with GET.
        path: with the name of its last part in braces, if that is not fixed.
        answer: makes the answer; its docstring describes the endpoint, its name the operation.
        rest: the form of the name at the path's end: any text with its escapes, one segment, or
            one or more segments; empty: there is none.
        query: the class of the parameters; None: they are not looked at.
        appends: it appends a transaction always, if its body says so, or never. The number of
            transactions under way is bounded.
        endless: the answer has no end, so that there is no HEAD.
        any_host: it answers also for a host that is none of the facade's, as probes name.
        body: the schema of the request's body; None: it takes none.
        answers: its answers by status, for the OpenAPI document; empty: it is not shown there.
        headers: request headers that it looks at, and what they mean.
        problems: the problem types of its failures, beside those of every endpoint.
    """

    method: str
    path: str
    answer: Callable[[Request, Any], Coroutine[Any, Any, Answer | EventStream]]
    rest: Literal["", "text", "segment", "segments"] = ""
    query: type[Any] | None = NoQuery
    access: Access = TOKEN
    appends: Literal["always", "perhaps", "never"] = "never"
    work: Work = "other"
    endless: bool = False
    any_host: bool = False
    body: dict[str, Any] | None = None
    answers: Mapping[int, Response] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.answer.__name__
