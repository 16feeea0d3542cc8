"""The request headers that the facade understands: preferences, ids, deadlines (RFC 7240).

`conditions` reads those that make a request conditional.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from streamydb.facade.field_values import read_list
from streamydb.facade.problems import ProblemError
from streamydb.limits import ID_BYTES_MAX, INTEGER_MAX
from streamydb.records.generation import FIRST, GENERATION

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
    """Return the size of a body as its request declares it: 0 if it does not.

    It is `INTEGER_MAX` if that is no number, or a longer one.
    """
    given = header_of(headers, b"content-length") or "0"
    return int(given) if _NUMBER.fullmatch(given) else INTEGER_MAX


class Preference(NamedTuple):
    """The client's preference: an answer before the verdict, after `wait_s` (infinite: it does not
    say).
    """

    respond_async: bool
    wait_s: float

    def applied(self) -> dict[str, str]:
        """Return the header that tells which preference was followed."""
        followed = ["respond-async"] if self.respond_async else []
        if math.isfinite(self.wait_s):
            followed.append(f"wait={self.wait_s:.0f}")
        return {"Preference-Applied": ", ".join(followed)} if followed else {}


_NO_PREFERENCE: Final = Preference(respond_async=False, wait_s=math.inf)


def preference(headers: Mapping[str, str]) -> Preference:
    """Read the header `Prefer` (RFC 7240): of a preference that is given twice, the first counts.

    What is malformed or unknown is ignored.
    """
    given = headers.get("prefer")
    if given is None:
        return _NO_PREFERENCE
    first: dict[str, str] = {}
    for member in filter(None, read_list(given)):
        first.setdefault(member.name, member.value)
    wait = first.get("wait", "")
    wait_s = min(float(wait), _WAIT_S_MAX) if _SECONDS.fullmatch(wait) else math.inf
    return Preference(first.get("respond-async") == "", wait_s)


def idempotency_key(headers: Mapping[str, str]) -> str | None:
    """Read the header `Idempotency-Key`, plain or as a quoted string.
    Raises ProblemError: invalid-parameter.
    """
    given = headers.get("idempotency-key")
    if given is None:
        return None
    text = given[1:-1] if len(given) > 1 and given[0] == given[-1] == '"' else given
    if not (text.isascii() and text.isprintable() and 1 <= len(text) <= ID_BYTES_MAX):
        detail = f"Idempotency-Key has 1 to {ID_BYTES_MAX} printable ASCII characters."
        raise ProblemError("invalid-parameter", detail, parameters=["Idempotency-Key"])
    return text


def deadline_ms(headers: Mapping[str, str]) -> int | None:
    """Read the header `Deadline-Ms`: the last commit time at which a write may be executed.
    Raises ProblemError: invalid-parameter.
    """
    given = headers.get("deadline-ms")
    if given is None:
        return None
    if not _NUMBER.fullmatch(given) or not 1 <= int(given) <= INTEGER_MAX:
        detail = "Deadline-Ms is a time in milliseconds since 1970."
        raise ProblemError("invalid-parameter", detail, parameters=["Deadline-Ms"])
    return int(given)


def last_event_id(headers: Mapping[str, str]) -> tuple[int, str] | None:
    """Read the header `Last-Event-ID`: a seq, and the generation after it.
    Raises ProblemError: invalid-parameter.
    """
    given = headers.get("last-event-id")
    if not given:
        return None
    match = _EVENT.fullmatch(given)
    if match is None or int(match[1]) > INTEGER_MAX:
        detail = "Last-Event-ID is the id that the last event had."
        raise ProblemError("invalid-parameter", detail, parameters=["Last-Event-ID"])
    return int(match[1]), match[2] or FIRST
