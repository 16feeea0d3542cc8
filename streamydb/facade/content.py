"""The header fields of a request that say what its body means (RFC 9110, sections 8 and 14.5).

A body is JSON in UTF-8, as it stands. A field that says otherwise is refused, as the body would be
taken for something that it is not. Fields that leave the meaning alone (digests, languages,
locations) are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from streamydb.facade.field_values import read_list, read_media_type
from streamydb.facade.problems import ProblemError

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
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in CONTENT_FIELDS and (name, value) not in _USUAL:
            found[name] = found[name] + b", " + value if name in found else value
    for name, value in found.items():
        _check(name, value.decode("latin-1").strip(" \t"))


def _check(name: bytes, value: str) -> None:
    if name == b"content-range":
        detail = "A value is stored as a whole: send all of it, without the header Content-Range."
        raise ProblemError("invalid-parameter", detail, parameters=["Content-Range"])
    if not value:
        return
    if name == b"content-type" and not _is_json(value):
        detail = "The header Content-Type names no JSON in UTF-8: send application/json."
        raise _unsupported("Content-Type", detail, "Accept", "application/json")
    if name == b"content-encoding" and not _is_identity(value):
        detail = "The header Content-Encoding names a coding: send the body as it is."
        raise _unsupported("Content-Encoding", detail, "Accept-Encoding", "identity")
    if name == b"content-transfer-encoding" and value.lower() not in _PLAIN_ENCODINGS:
        detail = "HTTP has no Content-Transfer-Encoding: send the body as it is."
        raise _unsupported("Content-Transfer-Encoding", detail, "Accept", "application/json")
    if name == b"expect" and not _expects_continue(value):
        detail = "The header Expect names something else than 100-continue."
        raise ProblemError("expectation-failed", detail, parameters=["Expect"])


def _unsupported(field: str, detail: str, answer: str, accepted: str) -> ProblemError:
    return ProblemError(
        "unsupported-media-type", detail, headers={answer: accepted}, parameters=[field]
    )


@lru_cache(maxsize=256)
def _is_json(content_type: str) -> bool:
    found = read_media_type(content_type)
    if found is None or not (found.name in _TYPES or found.name.endswith("+json")):
        return False
    return all(value.lower() in _CHARSETS for name, value in found.parameters if name == "charset")


def _is_identity(content_encoding: str) -> bool:
    return all(member == ("identity", "", ()) for member in read_list(content_encoding))


@lru_cache(maxsize=256)
def _expects_continue(expect: str) -> bool:
    return all(member == ("100-continue", "", ()) for member in read_list(expect))
