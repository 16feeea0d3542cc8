"""The parameters of requests: a class for each set of them, whose fields decode and document it."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Annotated, Any, Final, Generic, NamedTuple, TypeVar, get_args
from urllib.parse import parse_qsl

import msgspec
from msgspec import Meta

from streamydb.client.requests import Consistency
from streamydb.facade.health import Kind
from streamydb.facade.problems import ProblemError
from streamydb.facade.reads import ReadPoint
from streamydb.limits import INTEGER_MAX, TTL_MS_MAX
from streamydb.records.formats import UNREADABLE

LIMIT_DEFAULT: Final = 100  # entries of a page whose request names no number
_TEXT_MAX: Final = 8_192
_Query = TypeVar("_Query", bound=msgspec.Struct)
_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_FORMS: Final[dict[Any, re.Pattern[str]]] = {int: _INTEGER, float: _NUMBER}
"""The forms of numbers, as JSON has them: a body may not have another one either."""

_TEXTS: Final = frozenset({"prefix", "start", "end", "cursor", "where", "where_before"})
"""Parameters that may be any text; elsewhere `null` would be taken for none."""


def _seq(text: str, least: int = 1) -> Meta:
    return Meta(ge=least, le=INTEGER_MAX, description=text)


def _text(text: str, pattern: str | None = None) -> Meta:
    length_max = _TEXT_MAX if pattern is None else None
    return Meta(max_length=length_max, pattern=pattern, description=text)


def _said(text: str) -> Meta:
    return Meta(description=text)


_AT: Final = _seq(
    "The state after this seq (an ETag's number); not with consistency strong or session."
)
_CONSISTENCY: Final = _said(
    "strong (linearizable; default), session (at least `min_version`), or snapshot (what the read "
    "model has, without waiting)."
)
_MIN_VERSION: Final = _seq("Show a state that includes this seq; at most `at`.")
_PREFIX: Final = _text("Only keys that begin so.")
_START: Final = _text("Only keys from this one on.")
_END: Final = _text("Only keys before this one.")
_PAGE_CURSOR: Final = _text(
    "Go on where an answer ended, at its snapshot; alone, or with the same parameters."
)
_LIMIT: Final = Meta(ge=1, description="Most entries in a page; /v1/limits has the largest.")
_TTL_MS: Final = Meta(
    ge=1, le=TTL_MS_MAX, description="The key is absent from so many ms after the commit on."
)
_RECORD: Final = _text(
    "Where the record is in the log (partition:offset), as Location has it.",
    r"^[0-9]{1,9}:[0-9]{1,19}$",
)
_WHERE: Final = _text(
    "Only changes whose value after them keeps this check: JSON without a key, such as "
    '{"ge": 100}; `version` is the change\'s seq.'
)
_AFTER: Final = _text(
    "Begin after this transaction (seq), or after one of its records (seq.index).",
    r"^[0-9]{1,19}([.][0-9]{1,19})?$",
)
_WAIT: Final = Meta(
    ge=0, le=3_600, description="Seconds to wait for a record, at most heartbeat_s of limits."
)
_FOR: Final = _said(
    "200 if it can serve these: reads (of a snapshot), strong (reads of the present), writes, "
    "changes; else 503."
)


class NoQuery(msgspec.Struct, frozen=True):
    """No parameters."""


class ReadQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The state that a read is of."""

    at: Annotated[int, _AT] | None = None
    consistency: Annotated[Consistency, _CONSISTENCY] | None = None
    min_version: Annotated[int, _MIN_VERSION] | None = None

    @property
    def point(self) -> ReadPoint:
        return ReadPoint(self.at, self.consistency, self.min_version)


class ListQuery(ReadQuery, frozen=True):
    """A page of keys, and the state that it is of."""

    prefix: Annotated[str, _PREFIX] | None = None
    start: Annotated[str, _START] | None = None
    end: Annotated[str, _END] | None = None
    limit: Annotated[int, _LIMIT] = LIMIT_DEFAULT
    cursor: Annotated[str, _PAGE_CURSOR] | None = None


class HistoryQuery(ReadQuery, frozen=True):
    """The versions of a key up to a state."""

    limit: Annotated[int, Meta(ge=1, le=1_000, description="Most versions in an answer.")] = 50


class ExpiryQuery(msgspec.Struct, frozen=True):
    """The end of a value."""

    ttl_ms: Annotated[int, _TTL_MS] | None = None


class VerdictQuery(msgspec.Struct, frozen=True):
    """The place of a transaction."""

    record: Annotated[str, _RECORD] | None = None


class ChangesQuery(msgspec.Struct, frozen=True):
    """The changes to follow."""

    since: Annotated[int, _seq("Changes after this seq; default: from now on.", 0)] | None = None
    prefix: Annotated[str, _PREFIX] | None = None
    start: Annotated[str, _START] | None = None
    end: Annotated[str, _END] | None = None
    where: Annotated[str, _WHERE] | None = None
    where_before: (
        Annotated[str, _text("The same for the value before them; has no `version`.")] | None
    ) = None


class StreamQuery(msgspec.Struct, frozen=True):
    """A page of a stream."""

    cursor: Annotated[str, _text("Go on where an answer ended; not with `after`.")] | None = None
    after: Annotated[str, _AFTER] | None = None
    limit: Annotated[int, _LIMIT] = LIMIT_DEFAULT
    wait: Annotated[float, _WAIT] = 0


class StatsQuery(msgspec.Struct, frozen=True):
    """The samples to show."""

    after_ms: Annotated[int, _seq("Only samples after this time (ms).", 0)] | None = None


class ReadyQuery(msgspec.Struct, frozen=True):
    """The requests that the facade shall be able to serve."""

    for_: Annotated[Kind, _FOR] = msgspec.field(default="reads", name="for")


_SHORT: Final = 64
"""Bytes of a query string that is likely to come again, such as `consistency=strong`."""


class _Field(NamedTuple):
    attribute: str
    type: Any
    form: re.Pattern[str] | None


class QueryForm(Generic[_Query]):
    """Decodes the query strings of an endpoint; each parameter of its class has a default."""

    def __init__(self, kind: type[_Query]) -> None:
        self.kind = kind
        self._none_given = kind()
        self._again = lru_cache(maxsize=256)(self._decoded)
        self._fields = {
            field.encode_name: _Field(field.name, field.type, _form_of(field.type))
            for field in msgspec.structs.fields(kind)
        }

    def read(self, query: bytes) -> _Query:
        """Return the parameters of a query string.

        A parameter is known, given once, and of its type; a number is written as in JSON.
        Raises ProblemError: invalid-parameter.
        """
        if not query:
            return self._none_given
        return self._again(query) if len(query) <= _SHORT else self._decoded(query)

    def _decoded(self, query: bytes) -> _Query:
        pairs = _pairs(query.decode("latin-1"))
        values = dict(pairs)
        if not values.keys() <= self._fields.keys() or len(values) < len(pairs):
            names = ", ".join(sorted(self._fields)) or "none"
            detail = f"A query parameter is unknown or given twice. Known here: {names}."
            raise ProblemError("invalid-parameter", detail)
        nulls = [name for name in values if values[name].lower() == "null" and name not in _TEXTS]
        if nulls:
            raise ProblemError("invalid-parameter", "null is no value here.", parameters=nulls)
        for name, text in values.items():
            form = self._fields[name].form
            if form is not None and form.fullmatch(text) is None:
                detail = f"{name} is a number, written as in JSON, and perhaps whole."
                raise ProblemError("invalid-parameter", detail, parameters=[name])
        try:
            return msgspec.convert(values, self.kind, strict=False)
        except UNREADABLE:
            wrong = [
                name
                for name, field in self._fields.items()
                if name in values and not _is_of(values[name], field.type)
            ]
            detail = "A parameter is missing or malformed."
            raise ProblemError("invalid-parameter", detail, parameters=wrong) from None


def _pairs(query: str) -> list[tuple[str, str]]:
    if "%" in query or "+" in query:
        return parse_qsl(query, keep_blank_values=True)
    parts = [part.partition("=") for part in query.split("&") if part]  # ten times as fast
    return [(name, text) for name, _, text in parts]


def _is_of(text: str, kind: Any) -> bool:
    try:
        msgspec.convert(text, kind, strict=False)
    except UNREADABLE:
        return False
    return True


def _form_of(kind: Any) -> re.Pattern[str] | None:
    if isinstance(kind, type):
        return _FORMS.get(kind)
    forms = (_form_of(part) for part in get_args(kind) if not isinstance(part, (Meta, str)))
    return next((form for form in forms if form is not None), None)
