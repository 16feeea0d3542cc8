"""The local caches of a simulated shard, and the late workers that get in their way.

Caches survive a crash, vanish, or are old ones. For a share of the seeds they are the real ones, in
a temporary folder. A late worker is one of a batch that was given up, or of one long ago: it takes
its step on the old state while another one takes the current step on the same caches.
"""

from __future__ import annotations

import copy
import random
import shutil
import tempfile
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from streamydb.frames.blobs import KeyScan, Position
from streamydb.frames.protocol import Message
from streamydb.key_processor.id_rows import IdTables
from streamydb.key_processor.memory import MemoryIdTables, MemoryValues
from streamydb.key_processor.state import ShardOutput
from streamydb.key_processor.value_store import ValueStore
from streamydb.key_processor.values import Overtaken
from streamydb.local.id_files import FileIdTables
from streamydb.local.shard_files import LmdbValues

__all__ = ["Caches", "FolderCaches", "LateWorkers", "MemoryCaches", "Step"]

Step = Callable[[ValueStore, IdTables], list[ShardOutput[Message]]]
"""A shard's step on a state of its own, with these caches."""

_KEPT = 3
_OPERATIONS = 16


class Caches(Protocol):
    """The caches of one shard."""

    def values(self) -> ValueStore:
        """The values, as one more worker opens them."""

    def tables(self) -> IdTables:
        """The tables of ids, as one more worker opens them."""

    def lose(self) -> None:
        """Lose both."""

    def keep(self) -> None:
        """Keep a copy of both as they are now."""

    def revert(self) -> None:
        """Back to the copy, if there is one."""


@dataclass(slots=True)
class MemoryCaches:
    """Caches in memory."""

    both: tuple[MemoryValues, MemoryIdTables] = field(
        default_factory=lambda: (MemoryValues(), MemoryIdTables())
    )
    older: tuple[MemoryValues, MemoryIdTables] | None = None

    def values(self) -> ValueStore:
        """The values."""
        return self.both[0]

    def tables(self) -> IdTables:
        """The tables of ids."""
        return self.both[1]

    def lose(self) -> None:
        """Lose both."""
        self.both = MemoryValues(), MemoryIdTables()

    def keep(self) -> None:
        """Keep a copy."""
        self.older = copy.deepcopy(self.both)

    def revert(self) -> None:
        """Back to the copy."""
        if self.older is not None:
            self.both = copy.deepcopy(self.older)


class FolderCaches:
    """The real ones, in a temporary folder that goes with this object."""

    def __init__(self) -> None:
        """Begin with an empty folder."""
        self._root = Path(tempfile.mkdtemp(prefix="streamydb-sim-"))
        self._now, self._older = self._root / "now", self._root / "older"
        self._now.mkdir()
        weakref.finalize(self, _remove, self._root)

    def values(self) -> ValueStore:
        """The values in LMDB."""
        return LmdbValues(self._now)

    def tables(self) -> IdTables:
        """The tables of ids in files; whoever comes second gets others."""
        return FileIdTables(self._now)

    def lose(self) -> None:
        """Remove the folder's files."""
        LmdbValues.close(self._now)
        shutil.rmtree(self._now)
        self._now.mkdir()

    def keep(self) -> None:
        """Copy the files."""
        LmdbValues.close(self._now)
        shutil.rmtree(self._older, ignore_errors=True)
        shutil.copytree(self._now, self._older)

    def revert(self) -> None:
        """Put the copies back."""
        if self._older.exists():
            self.lose()
            shutil.copytree(self._older, self._now, dirs_exist_ok=True)


def _remove(root: Path) -> None:
    LmdbValues.close(root / "now")
    shutil.rmtree(root, ignore_errors=True)


class _Disturbed:
    """A value store before one of whose operations something else happens."""

    alone = False

    def __init__(self, store: ValueStore, after: int, what: Callable[[], object]) -> None:
        self._store = store
        self._left = after
        self._what: Callable[[], object] | None = what

    def _now(self) -> ValueStore:
        self._left -= 1
        if self._left < 0:
            self.happen()
        return self._store

    def happen(self) -> None:
        """It happens now, unless it has."""
        if self._what is not None:
            what, self._what = self._what, None
            what()

    def position(self) -> Position:
        return self._now().position()

    def load(self, at: Position, keys: Sequence[bytes]) -> list[bytes | None] | None:
        return self._now().load(at, keys)

    def sizes(self, at: Position, keys: Sequence[bytes]) -> list[int] | None:
        return self._now().sizes(at, keys)

    def due(self, at: Position, until_ms: int, after: bytes, keys_max: int) -> list[bytes] | None:
        return self._now().due(at, until_ms, after, keys_max)

    def scan(self, at: Position, wanted: KeyScan) -> list[tuple[bytes, bytes]] | None:
        return self._now().scan(at, wanted)

    def apply(
        self,
        expected: Position,
        reached: Position,
        puts: list[tuple[bytes, bytes]],
        deletes: list[bytes],
        ends: Sequence[bytes] = (),
    ) -> bool:
        return self._now().apply(expected, reached, puts, deletes, ends)

    def clear(self, expected: Position, reached: Position) -> bool:
        return self._now().clear(expected, reached)

    def describe(self, at: Position, base: bytes) -> bool:
        return self._now().describe(at, base)


@dataclass(slots=True)
class LateWorkers:
    """Takes the steps of one shard; now and then a worker of an earlier batch is in the way.

    ``chance``: how often.
    """

    random: random.Random
    chance: float
    _steps: list[Step] = field(default_factory=list)

    def end(self) -> None:
        """The workers have ended with the pipeline that a copy of its checkpoint is put back for.

        One of a lost future could still get in the way once; Spark then repeats the task.
        """
        self._steps = []

    def take(self, step: Step, again: Step, caches: Caches) -> list[ShardOutput[Message]]:
        """Return the outputs of the step.

        ``again``: the same step, to be taken by a late worker some time.
        """
        rng = self.random
        late = rng.choice(self._steps) if self._steps and rng.random() < self.chance else None
        if rng.random() < 0.3:
            self._steps = [again, *self._steps[: _KEPT - 1]]
        if late is None:
            return _with(step, caches.values(), caches)
        after = rng.randrange(_OPERATIONS)
        if rng.random() < 0.5:  # the late one comes in between
            store = _Disturbed(caches.values(), after, lambda: _late(late, None, caches))
            return _with(step, store, caches)
        found: list[ShardOutput[Message]] = []  # the late one is interrupted, and goes on later
        store = _Disturbed(
            caches.values(), after, lambda: found.extend(_with(step, caches.values(), caches))
        )
        _late(late, store, caches)
        store.happen()
        return found


def _with(step: Step, store: ValueStore, caches: Caches) -> list[ShardOutput[Message]]:
    tables = caches.tables()
    try:
        return step(store, tables)
    finally:
        if isinstance(tables, FileIdTables):
            tables.close()


def _late(step: Step, store: ValueStore | None, caches: Caches) -> None:
    """A late worker's step: it may be overtaken, and nobody takes what it gives."""
    with suppress(Overtaken):
        _with(step, store or caches.values(), caches)
