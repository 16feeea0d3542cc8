"""The request headers that the facade understands: conditions, preferences, ids (RFC 9110, RFC
7240).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from streamydb.facade.field_values import read_list
from streamydb.facade.problems import ProblemError
from streamydb.limits import ID_BYTES_MAX, INTEGER_MAX

__all__ = [
    "Preference",
    "checks_of",
    "deadline_ms",
    "declared_bytes",
    "entity_tag",
    "header_of",
    "idempotency_key",
    "last_event_id",
    "matches",
    "preference",
]

_TAG: Final = re.compile(r'(?:W/)?"[^"\x00-\x20\x7f]*"')
_OURS: Final = re.compile(r'"([1-9][0-9]{0,18})"')
_SECONDS: Final = re.compile(r"[0-9]+")
_WAIT_S_MAX: Final = 1e9
_NUMBER: Final = re.compile(r"[0-9]{1,19}")
_ANY: Final = "*"


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
    """The client's preference: an answer before the verdict, after some seconds or at once.

    Attributes:
        respond_async: the answer need not have the verdict.
        wait_s: how long the client waits; infinite if it does not say.
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


def entity_tag(version: int) -> str:
    """Return the ETag of a version."""
    return f'"{version}"'


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

    Raises:
        ProblemError: invalid-parameter.
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

    Raises:
        ProblemError: invalid-parameter.
    """
    given = headers.get("deadline-ms")
    if given is None:
        return None
    if not _NUMBER.fullmatch(given) or not 1 <= int(given) <= INTEGER_MAX:
        detail = "Deadline-Ms is a time in milliseconds since 1970."
        raise ProblemError("invalid-parameter", detail, parameters=["Deadline-Ms"])
    return int(given)


def last_event_id(headers: Mapping[str, str]) -> int | None:
    """Read the header `Last-Event-ID`.

    Raises:
        ProblemError: invalid-parameter.
    """
    given = headers.get("last-event-id")
    if not given:
        return None
    if not _NUMBER.fullmatch(given) or int(given) > INTEGER_MAX:
        detail = "Last-Event-ID is the seq that the last event had as its id."
        raise ProblemError("invalid-parameter", detail, parameters=["Last-Event-ID"])
    return int(given)


def matches(header: str, version: int) -> bool:
    """Tell whether a list of entity tags names a version, 0 for an absent key (weak comparison)."""
    tags = _tags(header)
    if tags is None:
        return version > 0
    return any(tag.removeprefix("W/") == entity_tag(version) for tag in tags)


def checks_of(headers: Mapping[str, str], key: str) -> list[dict[str, Any]] | None:
    """Turn the conditions of a write into checks; None if they cannot hold.

    Raises:
        ProblemError: invalid-parameter.
    """
    checks: list[dict[str, Any]] = []
    if "if-match" in headers:
        tags = _tags(headers["if-match"])
        if tags is None:
            checks.append({"key": key, "exists": True})
        else:
            versions = _versions(tags)
            if not versions:
                return None
            checks.append({"key": key, "version": versions[0]})
    if "if-none-match" in headers:
        if _tags(headers["if-none-match"]) is not None:
            raise _condition("If-None-Match", "On writes If-None-Match takes * (create only).")
        checks.append({"key": key, "exists": False})
    return checks


def _versions(tags: list[str]) -> list[int]:
    """The one version that strong tags of ours name; other tags name none that ever was."""
    found = {int(match[1]) for tag in tags if (match := _OURS.fullmatch(tag))}
    versions = [version for version in found if version <= INTEGER_MAX]
    if len(versions) > 1:
        raise _condition("If-Match", "If-Match takes one version here.")
    return versions


def _tags(header: str) -> list[str] | None:
    """The entity tags of a condition; None for *."""
    if header.strip() == _ANY:
        return None
    tags = [tag.strip() for tag in header.split(",")]
    if not all(map(_TAG.fullmatch, tags)):
        raise _condition("If-Match, If-None-Match", 'A condition is * or tags such as "41".')
    return tags


def _condition(name: str, detail: str) -> ProblemError:
    return ProblemError("invalid-parameter", detail, parameters=name.split(", "))
