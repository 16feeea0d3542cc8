"""The interface of snapshots to those who scan them, wherever the rows come from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from streamydb.records.ranges import ALL_KEYS, ScanRange


class JsonPage(NamedTuple):
    """A page of a list.

    Attributes:
        items: its entries as items of a JSON array, without the brackets.
        last: the last key, if others follow.
        whole: False if nothing was read, because too many keys would have been passed at once.
    """

    items: bytes
    last: str | None
    whole: bool = True


class StoredEntry(Protocol):
    """A key that is there: its value in canonical JSON, its version with its time, its end."""

    @property
    def key(self) -> str: ...

    @property
    def value(self) -> bytes: ...

    @property
    def version(self) -> int: ...

    @property
    def ts_ms(self) -> int:
        """The commit timestamp of the version."""

    @property
    def expires_ms(self) -> int | None:
        """The commit time (ms) from which on the key is absent; None: it has no end."""


class Scannable(Protocol):
    """A state whose keys are read in order."""

    def scan(self, keys: ScanRange = ALL_KEYS, *, limit: int = 1000) -> Sequence[StoredEntry]:
        """Return entries in the order of their keys' UTF-8 bytes."""


def pages(state: Scannable, keys: ScanRange, limit: int) -> Iterator[Sequence[StoredEntry]]:
    """Yield all entries of a range, page by page."""
    while page := state.scan(keys, limit=limit):
        yield page
        keys = replace(keys, after=page[-1].key)
