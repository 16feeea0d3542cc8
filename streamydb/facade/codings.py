"""Content codings: in which of them an answer is sent (RFC 9110, sections 8.4 and 12.5.3).

An answer is sent as it is, or compressed. A client's field Accept-Encoding and the answer's size
decide it, and nothing else; so whoever makes a head knows beforehand which tag and length it has.
"""

from __future__ import annotations

import gzip
import re
from functools import lru_cache
from typing import Final

PLAIN: Final = ""
"""The coding of an answer that is sent as it is."""

GZIP: Final = "gzip"

SUFFIXES: Final = {PLAIN: "", GZIP: "-gzip"}
"""The end of the entity tag of a representation, by its coding."""

_FASTEST: Final = 1
"""A higher level takes several times as long for some percent."""

_MEMBER: Final = re.compile(
    r"(?P<name>[!#$%&'*+.^_`|~0-9a-z-]+)"
    r"(?:[ \t]*;[ \t]*q=(?P<q>0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?))?"
)
_ALIASES: Final = {"x-gzip": GZIP, "identity": PLAIN}


@lru_cache(maxsize=256)
def accepted_codings(field: str) -> tuple[str, ...]:
    """Return those of our codings that a field Accept-Encoding allows; the best, or compressed,
    first.
    """
    weights_sent: dict[str, float] = {}
    for each in field.lower().split(","):
        match = _MEMBER.fullmatch(each.strip(" \t"))
        if match is not None:
            name = _ALIASES.get(match["name"], match["name"])
            weights_sent[name] = max(weights_sent.get(name, 0.0), float(match["q"] or 1))
    rest = weights_sent.get("*")
    compressed = weights_sent.get(GZIP, rest or 0.0)
    if PLAIN not in weights_sent and rest is None:  # accepted unless it is excluded
        return (GZIP, PLAIN) if compressed else (PLAIN,)
    plain = weights_sent.get(PLAIN, rest or 0.0)
    order = (GZIP, PLAIN) if compressed >= plain else (PLAIN, GZIP)
    weights = {GZIP: compressed, PLAIN: plain}
    return tuple(coding for coding in order if weights[coding])


def tagged(tag: str, coding: str) -> str:
    """Return the entity tag of a representation in a coding; ``tag``: the one of the plain one."""
    suffix = SUFFIXES[coding]
    return f'{tag[:-1]}{suffix}"' if suffix else tag


def compressed(body: bytes) -> bytes:
    """Return a body in `GZIP`, the same whenever it is made."""
    return gzip.compress(body, _FASTEST, mtime=0)
