"""Tables in memory, for tests: commits are serial, and validated as those of the database are.

What is too large for a transaction of a database is too large here, too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from streamydb import errors
from streamydb.client import RangeTooLargeError, canonical, decode_value, prepare
from streamydb.client.forks import Owned
from streamydb.limits import RANGE_KEYS_MAX
from streamydb_layers.tables.errors import TransactionConflictError
from streamydb_layers.tables.transaction import Overlay, Transaction, commit_fields

_T = TypeVar("_T")
_ATTEMPTS_MAX: Final = 1_000
_ID_CHARACTERS: Final = 36
_DEADLINE_MS: Final = 10**12
"""As long as those of a database's transaction are."""

State = dict[str, tuple[int, bytes]]
"""Key -> version and value in canonical JSON."""


class MemoryStore:
    """Keys in memory; see `Store`."""

    def __init__(self) -> None:
        self._last: tuple[int, State] = (0, {})
        self._lock: Owned[threading.Lock] = Owned(threading.Lock)

    @property
    def seq(self) -> int:
        """The number of commits."""
        return self._last[0]

    @property
    def state(self) -> State:
        """The keys now; a commit makes another state of it, and a fork never copies half of one."""
        return self._last[1]

    def begin(self) -> MemorySnapshot:
        """Begin a transaction; its first read takes the state."""
        return MemorySnapshot(self)

    def run(self, function: Callable[[Transaction], _T]) -> _T:
        """Execute a function as a transaction, again after a conflict."""
        for _ in range(_ATTEMPTS_MAX):
            snapshot = self.begin()
            overlay = Overlay(snapshot)
            value = function(overlay)
            try:
                snapshot.commit(overlay.writes)
            except TransactionConflictError:
                continue
            return value
        raise TransactionConflictError("There was a conflict in each attempt.")

    def commit(self, seen: Mapping[str, int], ranges: Sequence[Range], writes: State) -> None:
        """Validate, then write."""
        with self._lock.get():
            seq, state = self._last[0] + 1, dict(self._last[1])
            if any(_version(state, key) != version for key, version in seen.items()):
                raise TransactionConflictError("A key that was read has been written.")
            if any(_within(state, start, end) != found for start, end, found in ranges):
                raise TransactionConflictError("A range that was read has been written.")
            for key, (_, value) in writes.items():
                state.pop(key, None)
                if value != b"null":
                    state[key] = seq, value
            self._last = seq, state


Range = tuple[str, str, dict[str, int]]
"""Start, end, and the versions of the keys that were there."""


class MemorySnapshot:
    """A state, and what was read of it; see `Snapshot`."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._taken: State | None = None
        self._seen: dict[str, int] = {}
        self._ranges: list[Range] = []

    def read(self, keys: Sequence[str]) -> dict[str, Any]:
        """Return the values of keys."""
        self._seen.update((key, _version(self._state, key)) for key in keys)
        return {key: self._value(key) for key in keys}

    def scan(self, start: str, end: str) -> list[tuple[str, Any]]:
        """Return a range in the order of keys."""
        found = _within(self._state, start, end)
        self._ranges.append((start, end, found))
        return [(key, self._value(key)) for key in sorted(found)]

    def commit(self, writes: Mapping[str, Any]) -> None:
        """Write if all that was read still holds; without writes, all was one state."""
        if writes:
            self._require_fits(writes)
            made = {key: (0, canonical(value)) for key, value in writes.items()}
            self._store.commit(self._seen, self._ranges, made)

    def _require_fits(self, writes: Mapping[str, Any]) -> None:
        """Raise what a facade would, if no transaction of a database reads and writes so much."""
        ranges = {(start, end): len(found) for start, end, found in self._ranges}
        if sum(ranges.values()) > RANGE_KEYS_MAX:
            code = errors.RANGE_TOO_LARGE
            raise RangeTooLargeError(errors.ABORTED_CODES[code], members={"code": code})
        fields = commit_fields(self._seen, ranges, self._store.seq, writes)
        prepare(
            "0" * _ID_CHARACTERS, deadline_ms=_DEADLINE_MS, checks=fields["checks"],
            updates=fields["updates"],
        )  # fmt: skip

    @property
    def _state(self) -> State:
        if self._taken is None:
            self._taken = self._store.state
        return self._taken

    def _value(self, key: str) -> Any:
        found = self._state.get(key)
        return None if found is None else decode_value(found[1])


def _within(state: State, start: str, end: str) -> dict[str, int]:
    """The keys of a range with their versions."""
    return {key: version for key, (version, _) in state.items() if start <= key < end}


def _version(state: State, key: str) -> int:
    return state[key][0] if key in state else 0
