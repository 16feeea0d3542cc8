"""Ranges of keys, by the bytes of their UTF-8: with a prefix, or from a start up to an end."""

from __future__ import annotations

from itertools import takewhile
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from streamydb.limits import KEY_BYTES_MAX

_Bound: TypeAlias = Annotated[str, Meta(min_length=1, max_length=KEY_BYTES_MAX)]

Bounds: TypeAlias = tuple[bytes, bytes]
"""The first bytes in a range, and the first behind it."""


_HIGHEST: Final = "\U0010ffff"
_SURROGATES: Final = range(0xD800, 0xE000)
"""Numbers that are no characters."""


def first_behind(prefix: str) -> str | None:
    """Return the first text behind all that begin with a prefix; None: there is none."""
    stem = prefix.rstrip(_HIGHEST)
    if not stem:
        return None
    following = ord(stem[-1]) + 1
    return stem[:-1] + chr(_SURROGATES.stop if following in _SURROGATES else following)


def end_of_prefix(first: bytes) -> bytes:
    """Return the first bytes behind all that begin with some: no byte of UTF-8 is the largest."""
    return first[:-1] + bytes([first[-1] + 1])


class Range(msgspec.Struct, gc=False, forbid_unknown_fields=True, frozen=True):
    """The keys that begin with ``prefix``, or those from ``start`` up to ``end``, without it."""

    prefix: _Bound | UnsetType = UNSET
    start: _Bound | UnsetType = UNSET
    end: _Bound | UnsetType = UNSET

    @classmethod
    def of(cls, bounds: Bounds) -> Range:
        """Return the range with these bounds."""
        first, last = bounds
        if first and last == end_of_prefix(first):
            return cls(prefix=first.decode())
        return cls(start=first.decode(), end=last.decode())

    @property
    def fits(self) -> bool:
        """Return True if it has a prefix alone, or start and end."""
        if self.prefix is not UNSET:
            return self.start is UNSET and self.end is UNSET
        return self.start is not UNSET and self.end is not UNSET

    @property
    def begin(self) -> str:
        """The prefix, or the start."""
        return self.prefix if self.prefix is not UNSET else self.start or ""

    def bounds(self) -> Bounds:
        """Return its first bytes, and the first behind it."""
        if self.prefix is not UNSET:
            first = self.prefix.encode()
            return first, end_of_prefix(first)
        return (self.start or "").encode(), (self.end or "").encode()

    @property
    def shared(self) -> str:
        """Return a prefix that all its keys have, if it has any."""
        if self.prefix is not UNSET:
            return self.prefix
        pairs = zip(self.start or "", self.end or "", strict=False)
        return "".join(left for left, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

    def names(self) -> tuple[str, ...]:
        """Return the texts that it is made of."""
        return tuple(text for text in (self.prefix, self.start, self.end) if text is not UNSET)


class ScanRange(msgspec.Struct, frozen=True):
    """The keys of a scan or a watch: those that keep all its bounds, in the order of their UTF-8.

    Attributes:
        start: the first key.
        end: the key before which to end.
        after: the last key of the page before; the next page begins behind it.
    """

    prefix: str = ""
    start: str | None = None
    end: str | None = None
    after: str | None = None

    def has(self, key: str) -> bool:
        """Return True if a key is in the range; texts are in the order of their UTF-8."""
        return (
            key.startswith(self.prefix)
            and (self.start is None or key >= self.start)
            and (self.end is None or key < self.end)
            and (self.after is None or key > self.after)
        )

    def texts(self) -> dict[str, str]:
        """Return the bounds that it has, by their names."""
        fields = {"prefix": self.prefix or None, "start": self.start, "end": self.end}
        return {name: text for name, text in fields.items() if text is not None}


ALL_KEYS: Final = ScanRange()


class RangeRead(msgspec.Struct, gc=False, forbid_unknown_fields=True, frozen=True):
    """A range among the reads of a transaction: its entries are given; or among its locks."""

    range: Range
