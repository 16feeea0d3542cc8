"""The grammar of header fields (RFC 9110, section 5.6): lists, tokens, quoted strings,
parameters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_CHARS: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_QUOTED: Final = r'"(?:[\t \x21\x23-\x5b\x5d-\x7e\x80-\xff]|\\[\t\x20-\x7e\x80-\xff])*"'
_WORD: Final = rf"(?P<word>{_CHARS}|{_QUOTED})"
_PAIR: Final = re.compile(rf"(?P<name>{_CHARS})(?:[ \t]*=[ \t]*{_WORD})?")
_PARAMETER: Final = re.compile(rf"(?P<name>{_CHARS})={_WORD}")
_TYPE: Final = re.compile(rf"{_CHARS}/{_CHARS}")
_PIECE: Final = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?$)|[^",;]+|[,;]', re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


class Member(NamedTuple):
    """A member of a list: a name in small letters, a value (empty: none), parameters."""

    name: str
    value: str
    parameters: tuple[tuple[str, str], ...]


class MediaType(NamedTuple):
    """A media type in small letters, with its parameters."""

    name: str
    parameters: tuple[tuple[str, str], ...]


def read_list(field: str) -> list[Member | None]:
    """Return the members of a list of names with values and parameters; None for malformed ones.

    RFC 7240 has lists of this form, and so has RFC 9110 in `Expect` and in lists of tokens.
    """
    return [_member(parts) for parts in _divided(field)]


def read_media_type(field: str) -> MediaType | None:
    """Return the media type in a header Content-Type; None if it is none."""
    members = list(_divided(field))
    if len(members) != 1 or _TYPE.fullmatch(members[0][0]) is None:
        return None
    name, *rest = members[0]
    found = [_PARAMETER.fullmatch(part) for part in rest if part]
    pairs = tuple(map(_pair, filter(None, found)))
    return MediaType(name.lower(), pairs) if len(pairs) == len(found) else None


def _divided(field: str) -> Iterator[list[str]]:
    """Divide a list into its members, and each into what semicolons part;
    leave out empty members.
    """
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


def _member(parts: list[str]) -> Member | None:
    found = [_PAIR.fullmatch(part) for part in [parts[0], *filter(None, parts[1:])]]
    pairs = tuple(map(_pair, filter(None, found)))
    return Member(*pairs[0], pairs[1:]) if len(pairs) == len(found) else None


def _pair(found: re.Match[str]) -> tuple[str, str]:
    word = found["word"] or ""
    value = _ESCAPED.sub(r"\1", word[1:-1]) if word.startswith('"') else word
    return found["name"].lower(), value
