"""The request headers that the facade understands; `conditions` has If-Match and If-None-Match.

A body is JSON in UTF-8, as it stands. `check_content` refuses a field that says otherwise (RFC
9110, sections 8 and 14.5), as the body would be taken for something that it is not. Fields that
leave the meaning alone (digests, languages, locations) are not looked at.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from streamydb.facade.problems import ProblemError
from streamydb.limits import ID_BYTES_MAX, INTEGER_MAX
from streamydb.records.generation import FIRST, GENERATION

_CHARS: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_QUOTED: Final = r'"(?:[\t \x21\x23-\x5b\x5d-\x7e\x80-\xff]|\\[\t\x20-\x7e\x80-\xff])*"'
_WORD: Final = rf"(?P<word>{_CHARS}|{_QUOTED})"
_PAIR: Final = re.compile(rf"(?P<name>{_CHARS})(?:[ \t]*=[ \t]*{_WORD})?")
_PARAMETER: Final = re.compile(rf"(?P<name>{_CHARS})={_WORD}")
_TYPE: Final = re.compile(rf"{_CHARS}/{_CHARS}")
_PIECE: Final = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?$)|[^",;]+|[,;]', re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


class FieldMember(NamedTuple):
    """A member of a list: a name in small letters, a value (empty: none), parameters."""

    name: str
    value: str
    parameters: tuple[tuple[str, str], ...]


class MediaType(NamedTuple):
    """A media type in small letters, with its parameters."""

    name: str
    parameters: tuple[tuple[str, str], ...]


def read_list(field: str) -> list[FieldMember | None]:
    """Return the members of a list of names with values and parameters; None for malformed ones.

    RFC 7240 has lists of this form, and so has RFC 9110 in `Expect` and in lists of tokens.
    """
    return [_member(parts) for parts in _split_members(field)]


def read_media_type(field: str) -> MediaType | None:
    """Return the media type in a header Content-Type; None if it is none."""
    members = list(_split_members(field))
    if len(members) != 1 or _TYPE.fullmatch(members[0][0]) is None:
        return None
    name, *rest = members[0]
    matches = [_PARAMETER.fullmatch(part) for part in rest if part]
    pairs = tuple(map(_pair, filter(None, matches)))
    return MediaType(name.lower(), pairs) if len(pairs) == len(matches) else None


def _split_members(field: str) -> Iterator[list[str]]:
    """Divide a list into its members, and each at its semicolons; leave out empty members."""
    parts = [""]
    for piece in (*_PIECE.findall(field), ","):
        if piece == ";":
            parts.append("")
        elif piece != ",":
            parts[-1] += piece
        else:
            parts = [part.strip(" \t") for part in parts]
            if any(parts):
                yield parts
            parts = [""]


def _member(parts: list[str]) -> FieldMember | None:
    matches = [_PAIR.fullmatch(part) for part in [parts[0], *filter(None, parts[1:])]]
    pairs = tuple(map(_pair, filter(None, matches)))
    return FieldMember(*pairs[0], pairs[1:]) if len(pairs) == len(matches) else None


def _pair(match: re.Match[str]) -> tuple[str, str]:
    word = match["word"] or ""
    value = _ESCAPED.sub(r"\1", word[1:-1]) if word.startswith('"') else word
    return match["name"].lower(), value


_SECONDS: Final = re.compile(r"[0-9]+")
_WAIT_S_MAX: Final = 1e9
_NUMBER: Final = re.compile(r"[0-9]{1,19}")
_EVENT: Final = re.compile(rf"([0-9]{{1,19}})(?:@({GENERATION.pattern}))?")


def header_of(headers: Iterable[tuple[bytes, bytes]], wanted: bytes) -> str:
    """Return the first header of a name among those of a scope, empty if there is none."""
    for name, value in headers:
        if name == wanted:
            return value.decode("latin-1")
    return ""


def declared_bytes(headers: Iterable[tuple[bytes, bytes]]) -> int:
    """Return the declared size of a body, 0 without one, `INTEGER_MAX` if it is no number."""
    given = header_of(headers, b"content-length") or "0"
    return int(given) if _NUMBER.fullmatch(given) else INTEGER_MAX


class Preference(NamedTuple):
    """The client waits `wait_s` for a verdict (infinite: it does not say), or not at all."""

    respond_async: bool
    wait_s: float

    def applied(self) -> dict[str, str]:
        followed = ["respond-async"] if self.respond_async else []
        if math.isfinite(self.wait_s):
            followed.append(f"wait={self.wait_s:.0f}")
        return {"Preference-Applied": ", ".join(followed)} if followed else {}


_NO_PREFERENCE: Final = Preference(respond_async=False, wait_s=math.inf)


def preference(headers: Mapping[str, str]) -> Preference:
    """Read the header `Prefer` (RFC 7240); the first of each name counts, what is malformed does
    not.
    """
    field = headers.get("prefer")
    if field is None:
        return _NO_PREFERENCE
    preferences: dict[str, str] = {}
    for member in filter(None, read_list(field)):
        preferences.setdefault(member.name, member.value)
    wait = preferences.get("wait", "")
    wait_s = min(float(wait), _WAIT_S_MAX) if _SECONDS.fullmatch(wait) else math.inf
    return Preference(preferences.get("respond-async") == "", wait_s)


def idempotency_key(headers: Mapping[str, str]) -> str | None:
    """Read `Idempotency-Key`, plain or quoted. Raises ProblemError: invalid-parameter."""
    field = headers.get("idempotency-key")
    if field is None:
        return None
    text = field[1:-1] if len(field) > 1 and field[0] == field[-1] == '"' else field
    if not (text.isascii() and text.isprintable() and 1 <= len(text) <= ID_BYTES_MAX):
        detail = f"Idempotency-Key has 1 to {ID_BYTES_MAX} printable ASCII characters."
        raise ProblemError("invalid-parameter", detail, parameters=["Idempotency-Key"])
    return text


def deadline_ms(headers: Mapping[str, str]) -> int | None:
    """Read `Deadline-Ms`, the end of a write. Raises ProblemError: invalid-parameter."""
    field = headers.get("deadline-ms")
    if field is None:
        return None
    if not _NUMBER.fullmatch(field) or not 1 <= int(field) <= INTEGER_MAX:
        detail = "Deadline-Ms is a time in milliseconds since 1970."
        raise ProblemError("invalid-parameter", detail, parameters=["Deadline-Ms"])
    return int(field)


def last_event_id(headers: Mapping[str, str]) -> tuple[int, str] | None:
    """Read `Last-Event-ID`: a seq, and its generation. Raises ProblemError: invalid-parameter."""
    field = headers.get("last-event-id")
    if not field:
        return None
    match = _EVENT.fullmatch(field)
    if match is None or int(match[1]) > INTEGER_MAX:
        detail = "Last-Event-ID is the id that the last event had."
        raise ProblemError("invalid-parameter", detail, parameters=["Last-Event-ID"])
    return int(match[1]), match[2] or FIRST


CONTENT_PROBLEMS: Final = ("unsupported-media-type", "expectation-failed")
"""Problems of fields that are not understood, for every endpoint that takes a body."""

CONTENT_FIELDS: Final = frozenset(
    {b"content-encoding", b"content-range", b"content-transfer-encoding", b"content-type",
     b"expect"}
)  # fmt: skip
"""The fields that are looked at."""

_TYPES: Final = frozenset(
    {"application/json", "text/json", "text/plain", "application/octet-stream",
     "application/x-www-form-urlencoded"}
)  # fmt: skip
"""Types that a JSON text is sent as: the last three by programs that were told of none."""
_USUAL: Final = frozenset({(b"content-type", b"application/json")})
"""What most send, and what needs no second look."""
_CHARSETS: Final = frozenset({"utf-8", "utf8", "us-ascii", "ascii"})
_PLAIN_ENCODINGS: Final = frozenset({"7bit", "8bit", "binary"})


def check_content(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Refuse a body that is not meant as it stands.
    Raises ProblemError: unsupported-media-type, expectation-failed; invalid-parameter for a part of
    a body.
    """
    fields: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in CONTENT_FIELDS and (name, value) not in _USUAL:
            fields[name] = fields[name] + b", " + value if name in fields else value
    for name, value in fields.items():
        _check(name, value.decode("latin-1").strip(" \t"))


def _check(name: bytes, value: str) -> None:
    if name == b"content-range":
        detail = "A value is stored as a whole: send all of it, without the header Content-Range."
        raise ProblemError("invalid-parameter", detail, parameters=["Content-Range"])
    if not value:
        return
    if name == b"content-type" and not _is_json(value):
        detail = "The header Content-Type names no JSON in UTF-8: send application/json."
        raise _unsupported_media_type("Content-Type", detail, "Accept", "application/json")
    if name == b"content-encoding" and not _is_identity(value):
        detail = "The header Content-Encoding names a coding: send the body as it is."
        raise _unsupported_media_type("Content-Encoding", detail, "Accept-Encoding", "identity")
    if name == b"content-transfer-encoding" and value.lower() not in _PLAIN_ENCODINGS:
        detail = "HTTP has no Content-Transfer-Encoding: send the body as it is."
        raise _unsupported_media_type(
            "Content-Transfer-Encoding", detail, "Accept", "application/json"
        )
    if name == b"expect" and not _expects_continue(value):
        detail = "The header Expect names something else than 100-continue."
        raise ProblemError("expectation-failed", detail, parameters=["Expect"])


def _unsupported_media_type(field: str, detail: str, answer: str, accepted: str) -> ProblemError:
    return ProblemError(
        "unsupported-media-type", detail, headers={answer: accepted}, parameters=[field]
    )


@lru_cache(maxsize=256)
def _is_json(content_type: str) -> bool:
    media_type = read_media_type(content_type)
    if media_type is None or not (media_type.name in _TYPES or media_type.name.endswith("+json")):
        return False
    return all(
        value.lower() in _CHARSETS for name, value in media_type.parameters if name == "charset"
    )


def _is_identity(content_encoding: str) -> bool:
    return all(member == ("identity", "", ()) for member in read_list(content_encoding))


@lru_cache(maxsize=256)
def _expects_continue(expect: str) -> bool:
    return all(member == ("100-continue", "", ()) for member in read_list(expect))
