"""The read model of a database in memory (see `testing.memory`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, Self

from msgspec import UNSET, Raw
from msgspec.json import encode

from streamydb.errors import StreamyError
from streamydb.read_model.ports import JsonPage
from streamydb.records import Change
from streamydb.records.generation import FIRST
from streamydb.records.ranges import ALL_KEYS, ScanRange


class MemoryEntry(NamedTuple):
    """A key's value at a version; None: deleted."""

    key: str
    value: bytes
    version: int
    ts_ms: int
    expires_ms: int | None = None


class MemoryResolved(NamedTuple):
    """The position of a read model."""

    seq: int
    ts_ms: int
    offsets: Mapping[int, int]


class MemorySnapshot:
    """The state after a seq."""

    def __init__(self, seq: int, entries: dict[str, MemoryEntry]) -> None:
        self.seq = seq
        self.ts_ms = max((entry.ts_ms for entry in entries.values()), default=0)
        self._entries = entries

    def first_end(self) -> int | None:
        times = (entry.expires_ms for entry in self._entries.values())
        return min((end for end in times if end is not None), default=None)

    def get(self, key: str) -> MemoryEntry | None:
        return self._entries.get(key)

    def get_many(self, keys: Sequence[str]) -> list[MemoryEntry | None]:
        return [self._entries.get(key) for key in keys]

    def scan(self, keys: ScanRange = ALL_KEYS, *, limit: int = 1000) -> list[MemoryEntry]:
        names = sorted(filter(keys.has, self._entries), key=str.encode)
        return [self._entries[name] for name in names[:limit]]

    def get_json(self, keys: Sequence[str], bytes_max: int) -> bytes | None:
        entries = dict(zip(keys, self.get_many(keys), strict=True))
        if sum(len(entry.value) for entry in entries.values() if entry) > bytes_max:
            return None
        return _inside({key: entry and _shown(entry) for key, entry in entries.items()})

    def scan_json(
        self,
        keys: ScanRange = ALL_KEYS,
        *,
        limit: int,
        bytes_max: int,
        at_once: bool = False,  # noqa: ARG002 - the port
    ) -> JsonPage:
        entries = self.scan(keys, limit=limit + 1)
        sizes = list(accumulate(len(entry.value) for entry in entries[:limit]))
        page = entries[: max(1, sum(size <= bytes_max for size in sizes))]
        last = page[-1].key if len(page) < len(entries) else None
        return JsonPage(_inside(list(map(_shown, page))), last)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None: ...


def _shown(entry: MemoryEntry) -> dict[str, Any]:
    fields = {**entry._asdict(), "value": Raw(entry.value)}
    return {name: part for name, part in fields.items() if part is not None}


def _inside(container: Any) -> bytes:
    """Return a JSON object or array without its brackets."""
    return encode(container)[1:-1]


class MemoryModel:
    """The read model: every state that was ever resolved.

    Attributes:
        gone: states before this seq are not kept.
        broken: it cannot be read.
        generation: of the history that it shows (`records.generation`).
        looks: how often somebody asked how far it is.
    """

    def __init__(self) -> None:
        self.gone = 0
        self.broken = False
        self.generation = FIRST
        self.looks = 0
        self._resolved = MemoryResolved(0, 0, {})
        self._history: dict[str, list[tuple[int, bytes | None, int, int | None]]] = {}

    def latest(self) -> MemoryResolved:
        self._must_be_whole()
        self.looks += 1
        return self._resolved

    def oldest(self) -> int:
        return self.gone

    def snapshot(self, at: int | None = None) -> MemorySnapshot:
        self._must_be_whole()
        seq = self._resolved.seq if at is None else at
        if not self.gone <= seq <= self._resolved.seq:
            raise StreamyError(f"no snapshot at {seq}")
        return MemorySnapshot(seq, {e.key: e for k in self._history if (e := self._at(k, seq))})

    def apply(self, changes: Sequence[tuple[str, Change]], resolved: MemoryResolved) -> None:
        for key, change in changes:
            after = None if change.op == "d" else bytes(change.after)
            end = None if change.expires_ms is UNSET else change.expires_ms
            version = change.source.seq, after, change.ts_ms, end
            self._history.setdefault(key, []).append(version)
        self._resolved = resolved

    def _must_be_whole(self) -> None:
        if self.broken:
            raise StreamyError("the read model is broken")

    def _at(self, key: str, seq: int) -> MemoryEntry | None:
        past = [version for version in self._history[key] if version[0] <= seq]
        if not past:
            return None
        seq, value, ts_ms, end = past[-1]
        return None if value is None else MemoryEntry(key, value, seq, ts_ms, end)
