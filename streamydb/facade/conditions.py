"""Conditions of a request: the fields If-Match and If-None-Match (RFC 9110, section 13).

A read selects one representation of a value, plain or compressed, one that the conditions name if
there is one; they are about its entity tag. A write is about the versions that tags name: it holds
for a set of versions, while a check of a transaction names one. So a write is tried in steps. Each
step is a transaction that checks one version which the conditions allow. The verdict of a step that
failed tells the version that was met; if the conditions allow that one, too, the next step checks
it. Everything about a step follows from the request and the verdicts, its id too, so a request that
is sent again goes the same way.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any, Final, NamedTuple

from streamydb import errors
from streamydb.facade.answer import SUFFIXES, tagged
from streamydb.facade.generations import with_generation
from streamydb.facade.problems import ProblemError
from streamydb.limits import INTEGER_MAX
from streamydb.records import Result
from streamydb.records.attempts import id_after, with_fields
from streamydb.records.generation import FIRST, GENERATION

TAG: Final = r'(?:W/)?"[!#-~\x80-\xff]*"'
"""An entity tag (RFC 9110, section 8.8.3)."""

FIELD: Final = rf"(\*|[ \t,]*({TAG}([ \t]*,[ \t,]*{TAG})*)?[ \t,]*)"
"""The content of If-Match or If-None-Match; a list may have empty members (section 5.6.1.2)."""

_TAG: Final = re.compile(TAG)
_BETWEEN: Final = re.compile(r"[ \t]*(?:,[ \t]*|\Z)")
_EMPTY: Final = re.compile(r"[ \t,]*")
_OURS: Final = re.compile(rf'"([1-9][0-9]{{0,18}})(?:@({GENERATION.pattern}))?(?:-gzip)?"')
_BLANKS: Final = " \t"
_WEAK: Final = "W/"
_FIELDS: Final = {"if-match": "If-Match", "if-none-match": "If-None-Match"}


def entity_tag(version: int, generation: str = FIRST) -> str:
    return f'"{with_generation(str(version), generation)}"'


class EntityTags(NamedTuple):
    """A condition's entity tags, as they were sent; None: `*`, whatever is there."""

    tags: frozenset[str] | None

    def match_strongly(self, own: Iterable[str]) -> bool:
        """Return True if one of ``own``, all of them strong, is named (section 8.8.3.2)."""
        return any(self.tags is None or tag in self.tags for tag in own)

    def match_weakly(self, own: Iterable[str]) -> bool:
        """Return True if one of ``own`` is named, as a strong tag or as a weak one."""
        return any(self.tags is None or tag in self.tags or _WEAK + tag in self.tags for tag in own)

    def versions(self, generation: str) -> set[int]:
        """Return the versions that strong tags of ours name, of one generation."""
        matches = [match for tag in self.tags or () if (match := _OURS.fullmatch(tag))]
        versions = {int(match[1]) for match in matches if (match[2] or FIRST) == generation}
        return {version for version in versions if version <= INTEGER_MAX}


class Conditions(NamedTuple):
    """The conditions of a request; None: it has no such field. If-Match goes first."""

    if_match: EntityTags | None = None
    if_none_match: EntityTags | None = None

    def fails(self, own: Iterable[str]) -> bool:
        """Return True if If-Match does not hold for what has one of these tags."""
        return self.if_match is not None and not self.if_match.match_strongly(own)

    def selected(self, own: Sequence[str]) -> tuple[str, bool] | None:
        """Select one of a client's tags, the best first, and tell if the client has it; None:
        If-Match fails.
        """
        allowed = [tag for tag in own if not self.fails([tag])]
        known = next((tag for tag in allowed if self.is_known([tag])), None)
        if known is not None:
            return known, True
        return (allowed[0], False) if allowed else None

    def is_known(self, own: Iterable[str]) -> bool:
        return self.if_none_match is not None and self.if_none_match.match_weakly(own)


_NONE: Final = Conditions()


def conditions_of(headers: Mapping[str, str]) -> Conditions:
    """Read the conditions among a request's headers. Raises ProblemError: invalid-parameter."""
    if not headers or not _FIELDS.keys() & headers.keys():
        return _NONE
    return Conditions(_tags(headers, "if-match"), _tags(headers, "if-none-match"))


def _tags(headers: Mapping[str, str], field: str) -> EntityTags | None:
    """The tags of a field; a comma may stand in a tag."""
    if field not in headers:
        return None
    text = headers[field].strip(_BLANKS)
    if text == "*":
        return EntityTags(None)
    tags: list[str] = []
    position = _past(_EMPTY, text, 0)
    while position < len(text):
        tag = _TAG.match(text, position)
        between = None if tag is None else _BETWEEN.match(text, tag.end())
        if tag is None or between is None:
            name = _FIELDS[field]
            detail = f'{name} is * or a list of entity tags such as "41", with commas between.'
            raise ProblemError("invalid-parameter", detail, parameters=[name])
        tags.append(tag[0])
        position = _past(_EMPTY, text, between.end())
    return EntityTags(frozenset(tags))


def _past(pattern: re.Pattern[str], text: str, position: int) -> int:
    match = pattern.match(text, position)
    return position if match is None else match.end()


class KeyConditions(NamedTuple):
    """The conditions of a write, the key that they are about, the database's generation."""

    key: str
    conditions: Conditions
    generation: str = FIRST

    def allow(self, version: int) -> bool:
        """Return True if the write may be made over this version, 0 where there is none."""
        # The ETags of a version in all codings; of 0, an absent key, there are none.
        plain = entity_tag(version, self.generation)
        own = [tagged(plain, coding) for coding in SUFFIXES] if version else []
        return not self.conditions.fails(own) and not self.conditions.is_known(own)

    @property
    def in_steps(self) -> bool:
        """True if more than one check may be needed to judge them."""
        conditions = (self.conditions.if_match, self.conditions.if_none_match)
        return any(each is not None and each.tags is not None for each in conditions)

    def checks(self) -> list[dict[str, Any]] | None:
        """Return the checks of the first step; None if the conditions cannot hold. Without a list
        of versions there is one step. Else it checks the highest version that If-Match names, or
        the lowest of all that there may be.
        """
        matching, excluded = self.conditions
        if matching is None and excluded is None:
            return []
        if matching is not None and matching.tags is not None:
            allowed = list(filter(self.allow, matching.versions(self.generation)))
            return [self.check(max(allowed))] if allowed else None
        if excluded is None or excluded.tags is None:
            if matching is not None and excluded is not None:
                return None  # it is there, and it is not
            return [self.present() if excluded is None else self.absent()]
        return [self.check(next(filter(self.allow, count())))]

    def present(self) -> dict[str, Any]:
        return {"key": self.key, "exists": True}

    def absent(self) -> dict[str, Any]:
        return {"key": self.key, "exists": False}

    def check(self, version: int) -> dict[str, Any]:
        return {"key": self.key, "version": version}

    def met(self, result: Result) -> int | None:
        """Return the version that a step met in the place of the one that it checks, if it did."""
        if result.status != "aborted" or result.code != errors.CHECK_FAILED:
            return None
        return result.failed[0].version if result.failed else None

    def allow_again(self, result: Result) -> bool:
        """Return True if a step failed, and the write may be made over what it met."""
        met = self.met(result)
        return met is not None and self.allow(met)

    def following(self, txn_id: str, payload: bytes, result: Result) -> tuple[str, bytes] | None:
        """Return the id and the bytes of the next step; None if this verdict is the last."""
        met = self.met(result)
        if met is None or not self.allow(met):
            return None
        next_id = id_after(txn_id)
        return next_id, with_fields(payload, id=next_id, checks=[self.check(met)])
