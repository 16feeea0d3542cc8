"""The values of one shard: blobs of writes in the state, materialised in a local key-value file.

The blobs are the truth; the file is a cache that may be missing, behind, or one plan ahead (when a
batch is retried). It carries the position it stands at, a count of applied plans and a digest
chained over the blobs, and is only trusted when that is on the state's own history.

A worker of a batch that was given up may still run, with an older state, beside the worker of the
next batch. So whoever reads names the position it means, and whoever writes the one it expects, in
the file's own transaction. A worker that finds the file elsewhere brings it to its own state; one
that is overtaken while it does so by a worker with a later state gives up: nobody needs it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from streamydb import limits
from streamydb.errors import InvariantViolation, StreamyError
from streamydb.frames.blobs import (
    HEAD_BYTES,
    Blob,
    BlobStore,
    KeyScan,
    Position,
    key_named,
    merge_from,
)
from streamydb.frames.encoding import pack, unpack
from streamydb.frames.table import Ragged
from streamydb.frames.value_rows import ValueRows, WrittenValues
from streamydb.key_processor import checks, merge
from streamydb.key_processor.value_store import (
    INT_ITEM,
    FileOrder,
    ValueStore,
    decoded,
    items_of,
    nearly_sorted,
)

Ints = npt.NDArray[np.int64]

_ATTEMPTS_MAX: Final = 64
_BEHIND_ATTEMPTS_MAX: Final = 3
_LOADED_KEYS: Final = 512
_LOADED_KEYS_MIN: Final = 32
_LOADED_BYTES: Final = 4_096
_DUE_KEYS: Final = 4_096
_NEW: Final = (0, "")


class Overtaken(StreamyError):  # noqa: N818 - what happened
    """Another worker uses the local file with a later state: this one's batch was given up."""


class ValuesState(msgspec.Struct):
    """The index of the blobs: how many tables are applied, mostly one for each plan, and the digest
    they lead to.
    """

    applied: int = 0
    digest: str = ""
    blobs: list[Blob] = []
    next_blob: int = 0


class ShardValues:
    """Reads and writes of one shard within one step."""

    def __init__(self, state: ValuesState, blobs: BlobStore, store: ValueStore) -> None:
        self.state = state
        self._blobs = blobs
        self._store = store

    def apply_all(self, tables: Callable[[], Iterable[WrittenValues]]) -> None:
        """Apply the writes of one plan, each key at most once, one table after the other.

        ``tables``: gives them, the same ones whenever it is called. When the batch is repeated, the
        file may be behind any of them.
        """
        ahead: list[Position] = []
        position = self._at
        if self._store.position() != position and len(list(islice(tables(), 2))) > 1:
            for table in tables():
                position = _behind(position, pack(table.flatten())) if len(table) else position
                ahead.append(position)
        for table in tables():
            self.apply(table, ahead)

    def apply(self, writes: WrittenValues, ahead: Sequence[Position] = ()) -> None:
        """Apply writes, each key at most once, to the state and the file.

        ``ahead``: if the file is there, it has them, or gets them with what follows.
        """
        if not len(writes):
            return
        if self._store.alone:
            self._apply_alone(writes)
            return
        data = pack(writes.flatten())
        state, before = self.state, self._at
        reached = _behind(before, data)
        done = {reached, *(position for position in ahead if position[0] > reached[0])}
        if self._store.position() not in done:
            order = FileOrder.of(writes.key)
            checks.written(writes.key, order)
            items = items_of(writes.take(order.rows))
            attempt = 0
            while not self._store.apply(before, reached, *items):
                if self._store.position() in done:
                    break
                self._catch_up(attempt)
                attempt += 1
        name, size, parts = self._name(), len(data), 0
        if size > limits.BLOCK_BYTES_MAX:
            size, parts = self._put(name, [merge.sorted_by_hash(writes)])
        else:
            self._blobs.put(name, data)
        state.applied, state.digest = reached
        state.blobs.append(Blob(name, size, reached[0], reached[0], reached[1], parts))
        self._merge()
        checks.indexed(state.blobs, state.applied, state.digest)

    def _apply_alone(self, writes: WrittenValues) -> None:
        """Apply writes to a store that has the values alone: its position is a count."""
        state, before = self.state, self._at
        checks.written(writes.key, FileOrder.of(writes.key))
        reached = (state.applied + 1, state.digest)
        if not self._store.apply(before, reached, *items_of(writes)):
            raise InvariantViolation("the only store of the values is not where the state is")
        state.applied = reached[0]

    def describe(self, base: bytes) -> None:
        """Note in the file the base that its values are; a file that is elsewhere is left alone."""
        self._store.describe(self._at, base)

    def read(self, keys: Ragged) -> ValueRows:
        """Current values of keys."""
        values = self.read_within(keys, None)
        if values is None:
            raise InvariantViolation("values without a bound are over it")
        return values

    def read_within(self, keys: Ragged, bytes_max: int | None) -> ValueRows | None:
        """As `read`; None when the values have more than ``bytes_max`` bytes in all."""
        if len(keys) <= _LOADED_KEYS_MIN:
            few = self._loaded(keys.tolist())
            items = Ragged.of([value or b"" for value in few])
            fits = bytes_max is None or items.size - HEAD_BYTES * len(few) <= bytes_max
            return decoded(items) if fits else None
        order = FileOrder.of(keys).rows
        names = keys.take(order).tolist()
        parts, total, start, count = [], 0, 0, _LOADED_KEYS_MIN
        while start < len(names):
            values = self._loaded(names[start : start + count])
            parts.append(Ragged.of([value or b"" for value in values]))
            start, size = start + count, len(parts[-1].data)
            total += size - HEAD_BYTES * len(values)
            if bytes_max is not None and total > bytes_max:
                return None
            small = size <= _LOADED_BYTES * len(values)
            count = min(4 * count, _LOADED_KEYS) if small else _LOADED_KEYS_MIN
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        encoded = Ragged.concat(parts or [Ragged.empty()]).take(place)
        return decoded(encoded)

    def sizes(self, keys: Ragged) -> Ints:
        """Return how many bytes the values of keys have at least, 0 where they are integers; (n,).

        Nothing is copied, so a text of eight bytes counts as an integer.
        """
        order = FileOrder.of(keys).rows
        names = keys.take(order).tolist()
        out = np.empty(len(order), np.int64)
        for start in range(0, len(names), _LOADED_KEYS):
            part = names[start : start + _LOADED_KEYS]
            attempt = 0
            while (sizes := self._store.sizes(self._at, part)) is None:
                self._catch_up(attempt)
                attempt += 1
            out[order[start : start + len(part)]] = sizes
        return np.where(out == INT_ITEM.itemsize, 0, np.maximum(out - HEAD_BYTES, 0))

    @staticmethod
    def sizes_of(values: ValueRows) -> Ints:
        """Return what `sizes` says of values that were read; (n,).

        The same to the byte, or a plan that fits by one would not fit by the other.
        """
        sizes = values.text.lengths()
        return np.where(sizes == INT_ITEM.itemsize - HEAD_BYTES, 0, sizes)

    def scan(self, wanted: KeyScan) -> list[tuple[bytes, bytes]]:
        """The keys in a range with their encoded values, in order; see `KeyScan`."""
        attempt = 0
        while (items := self._store.scan(self._at, wanted)) is None:
            self._catch_up(attempt)
            attempt += 1
        return items

    def items(self, keys: list[bytes]) -> list[bytes]:
        """Return the encoded values of keys, empty where absent."""
        return [item or b"" for item in self._loaded(keys)]

    def due(self, until_ms: int, after: bytes = b"") -> Iterator[list[tuple[int, bytes]]]:
        """Yield (end, key) of all that ends by ``until_ms``, in this order, in lists.

        ``after``: only those with later names (`frames.blobs`).
        """
        while True:
            attempt = 0
            while (names := self._store.due(self._at, until_ms, after, _DUE_KEYS)) is None:
                self._catch_up(attempt)
                attempt += 1
            if names:
                yield list(map(key_named, names))
            if len(names) < _DUE_KEYS:
                return
            after = names[-1]

    def everything(self) -> WrittenValues:
        """All live keys with their values, in no particular order; see `pieces`."""
        tables = list(self.pieces())
        return WrittenValues.concat(tables) if tables else WrittenValues.none()

    def pieces(self) -> Iterator[WrittenValues]:
        """All live keys with their values, in pieces: no more of them is held than a few parts."""
        runs = [self._run(blob) for blob in self.state.blobs]
        yield from merge.merged(runs, drop_absent=True)

    @property
    def _at(self) -> Position:
        return self.state.applied, self.state.digest

    def _loaded(self, keys: list[bytes]) -> list[bytes | None]:
        attempt = 0
        while (values := self._store.load(self._at, keys)) is None:
            self._catch_up(attempt)
            attempt += 1
        return values

    def _catch_up(self, attempt: int) -> None:
        """Bring the file to the state's position, from where it is trusted or from nothing.
        Raises Overtaken: somebody else moved it since the last attempt, with a later state, or
        again and again.
        """
        while not self._walk(self._store.position()):
            attempt += 1
            self._must_go_on(attempt)
        self._must_go_on(attempt)

    def _must_go_on(self, attempt: int) -> None:
        """Give up after losing to a worker that is ahead; one plan ahead may be this batch, too."""
        ahead = self._store.position()[0] - self.state.applied
        most = _ATTEMPTS_MAX if ahead <= 0 else _BEHIND_ATTEMPTS_MAX if ahead == 1 else 0
        if attempt > most:
            raise Overtaken(
                "the local cache of this shard is in use by another worker; this batch was given "
                "up, or is to be repeated"
            )

    def _walk(self, position: Position) -> bool:
        """Go from ``position`` to the state's, step by step; False when somebody came between."""
        state, at = self.state, position
        names = [_steps(blob) for blob in state.blobs]
        ends = [(blob.last, blob.digest) for blob in state.blobs]
        begun = position[1].rpartition("/")
        number, done = 0, 0
        if position in ends:
            number = ends.index(position) + 1
        elif begun[0] in names and begun[2].isdigit():
            number, done = names.index(begun[0]), int(begun[2])
        elif position != _NEW:
            at = (state.applied, "nothing")
            if not self._store.clear(position, at):
                return False
        for blob in state.blobs[number:]:
            for step, rows in enumerate(self._slices(blob), start=1):
                if step > done:
                    reached = (state.applied, f"{_steps(blob)}/{step}")
                    if not self._store.apply(at, reached, *items_of(nearly_sorted(rows))):
                        return False
                    at = reached
            done = 0
        goal = self._at
        if state.blobs and goal != (state.blobs[-1].last, state.blobs[-1].digest):
            raise InvariantViolation("the blobs of the state do not lead to the state's own digest")
        return at == goal or self._store.apply(at, goal, [], [])

    def _load(self, name: str) -> WrittenValues:
        data = self._blobs.get(name)
        if data is None:
            raise InvariantViolation(f"the blob {name} is missing from the state")
        return WrittenValues.unflatten(unpack(data)[1])

    def _tables(self, blob: Blob) -> Iterator[WrittenValues]:
        """Yield the stored tables of a blob, part by part."""
        if not blob.parts:
            yield self._load(blob.name)
        for part in range(blob.parts):
            yield self._load(f"{blob.name}/{part}")

    def _slices(self, blob: Blob) -> Iterator[WrittenValues]:
        """A blob in steps of a size for one transaction of the file."""
        for table in self._tables(blob):
            yield from merge.slices(table)

    def _run(self, blob: Blob) -> Iterator[WrittenValues]:
        for table in self._tables(blob):
            if len(table):
                yield table if blob.parts else merge.sorted_by_hash(table)

    def _name(self) -> str:
        name = f"values/{self.state.next_blob}"
        self.state.next_blob += 1
        return name

    def _merge(self) -> None:
        """Make one blob of the last ones, or of all, if they are too many or too large."""
        state = self.state
        start = merge_from([blob.size for blob in state.blobs])
        old = state.blobs[start:]
        if not old:
            return
        name, last = self._name(), old[-1]
        if sum(blob.size for blob in old) <= limits.BLOCK_BYTES_MAX:
            tables = [table for blob in old for table in self._tables(blob)]
            data = pack(merge.latest(tables, drop_absent=start == 0).flatten())
            self._blobs.put(name, data)
            size, parts = len(data), 0
        else:
            runs = [self._run(blob) for blob in old]
            size, parts = self._put(name, merge.merged(runs, drop_absent=start == 0))
        for blob in old:
            self._delete(blob)
        state.blobs[start:] = [Blob(name, size, old[0].first, last.last, last.digest, parts)]

    def _put(self, name: str, pieces: Iterable[WrittenValues]) -> tuple[int, int]:
        """Store sorted pieces as the parts of a blob: how many bytes, and parts."""
        size = parts = 0
        for table in merge.parts_of(pieces):
            data = pack(table.flatten())
            self._blobs.put(f"{name}/{parts}", data)
            size, parts = size + len(data), parts + 1
        if not parts:
            self._blobs.put(name, data := pack(WrittenValues.none().flatten()))
            size = len(data)
        return size, parts

    def _delete(self, blob: Blob) -> None:
        names = [f"{blob.name}/{part}" for part in range(blob.parts)] or [blob.name]
        for name in names:
            self._blobs.delete(name)


def _behind(position: Position, data: bytes) -> Position:
    chained = hashlib.blake2b(position[1].encode() + data, digest_size=16)
    return position[0] + 1, chained.hexdigest()


def _steps(blob: Blob) -> str:
    """Return the name under which the prefixes of a blob are kept."""
    cut = limits.BLOCK_BYTES_MAX
    return f"{blob.digest}/{blob.name}/{blob.size}/{blob.parts}/{cut}"
