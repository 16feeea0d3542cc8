"""A state right after a seq, for any number of shards: keys, values, versions, ids, offsets of the
log.

It is what a pipeline has to know to go on: `start_blobs` makes of it what each of any number of
shards keeps. Its values are gone through in pieces and never held as a whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from streamydb.backup import checks
from streamydb.backup.manifest import BackupError
from streamydb.frames.blobs import Blob, BlobStore
from streamydb.frames.digest import item_lanes
from streamydb.frames.encoding import pack, unpack
from streamydb.frames.hashing import KEY_SEED, hash_ragged
from streamydb.frames.shards import ShardConfig
from streamydb.frames.table import ColumnTable
from streamydb.frames.value_rows import Verdicts, WrittenValues
from streamydb.key_processor.id_rows import DatedIds, UsedIds
from streamydb.key_processor.idwindow import DeadlineSpan, IdRun, IdWindowState
from streamydb.key_processor.merge import parts_of
from streamydb.key_processor.state import ShardState
from streamydb.key_processor.values import ValuesState
from streamydb.sorter.state import PartitionState, SorterState

FORMAT: Final = 3  # version of a state's folder; raised when an older program would misread it
_Rows = TypeVar("_Rows", UsedIds, DatedIds, Verdicts)
_Table = TypeVar("_Table", bound=ColumnTable)

_RUN_ROWS: Final = 65_536
_PART_BYTES: Final = 8 << 20
_MASK: Final = (1 << 64) - 1


class StateDescription(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a state.

    Attributes:
        format: of its folder.
        log: Kafka's id of the log.
        partitions: of the log when the database was created.
        id_window: for how many seqs an id is remembered.
        seq: the last transaction whose writes it has.
        ts_ms: the commit timestamp of that.
        positions: per partition of the log, where it goes on and what is known of it there.
        keys: how many there are.
        digest: over keys, versions and values; the sum of the shards' digests.
        files: of the folder.
        declares: a constraint has been declared, perhaps.
        expires: some keys may end.
    """

    format: int
    database: str
    log: str
    partitions: int
    id_window: int
    seq: int
    ts_ms: int
    positions: dict[int, PartitionState]
    keys: int
    digest: str
    files: list[str] = []
    declares: bool = False
    expires: bool = False

    def offsets(self) -> dict[int, int]:
        return {partition: state.position for partition, state in self.positions.items()}

    def must_fit(self, config: ShardConfig, name_of_state: str) -> None:
        """Refuse what a pipeline is configured with, if the state was made with something else.
        Raises BackupError: something differs; it is named with both values.
        """
        for name in ("partitions", "id_window"):
            old, new = getattr(self, name), getattr(config, name)
            if old != new:
                raise BackupError(
                    f"{name_of_state} was made with {name}={old}, now {new} is given; start with "
                    f"{name}={old}"
                )


@dataclass(slots=True, frozen=True)
class Pieces:
    """Tables that are made one by one, each time somebody iterates over them."""

    make: Callable[[], Iterator[WrittenValues]]

    def __iter__(self) -> Iterator[WrittenValues]:
        return self.make()


@dataclass(slots=True)
class State:
    """A state: values as the key processor has them, ids and verdicts as the id window has them.

    ``values``: in the order of their keys' hashes, in pieces; they can be gone through as
    long as the place is there where they lie.
    """

    about: StateDescription
    values: Iterable[WrittenValues]
    ids: DatedIds
    verdicts: Verdicts


def files_of(tables: Iterable[_Table]) -> Iterator[_Table]:
    """Tables in parts of a size for files."""
    return parts_of(tables, _PART_BYTES)


def start_blobs(state: State, config: ShardConfig, shard: int) -> Iterator[tuple[str, bytes]]:
    """Yield the named blobs with which a shard's state store begins.
    Raises BackupError: the state is of a database that was made otherwise.
    """
    if config.grouping != "planner":
        raise BackupError(
            "a pipeline with grouping=single begins with the log, not with a state; leave the "
            "state out, or start with --grouping planner"
        )
    state.about.must_fit(config, f"the state at seq {state.about.seq}")
    about, shards = state.about, np.uint64(config.shards)
    values, ids = ValuesState(), IdWindowState(config.id_window)
    yield from _values(state, config.shards, shard, values)
    checks.remembered(state.ids, state.verdicts, about.seq, is_new=False)
    homes = state.ids.id0 % shards == np.uint64(shard)
    for ids_of_shard, results, span in _remembered(state, homes, ids):
        yield from _runs("ids", ids_of_shard, span.ids, ids)
        yield from _runs("verdicts", results, span.verdicts, ids)
    sorter = SorterState(config.partitions, dict(about.positions), declares=about.declares)
    meta = ShardState(
        config, sorter, values, ids, seq=about.seq, ts=about.ts_ms, expires=about.expires
    )
    yield "meta", msgspec.msgpack.encode(meta)


def _values(
    state: State, shards: int, shard: int, index: ValuesState
) -> Iterator[tuple[str, bytes]]:
    """The values of a shard as one blob in parts, which ``index`` then names."""
    about = state.about
    pieces = checks.read(state.values, about.seq, about.keys)
    digest, size, parts = hashlib.blake2b(digest_size=16), 0, 0
    for part in parts_of(_own(pieces, shards, shard)):
        data = pack(part.flatten())
        digest.update(data)
        yield f"values/0/{parts}", data
        size, parts = size + len(data), parts + 1
    if parts:
        index.applied, index.next_blob, index.digest = 1, 1, digest.hexdigest()
        index.blobs = [Blob("values/0", size, 1, 1, index.digest, parts)]


def _own(pieces: Iterable[WrittenValues], shards: int, shard: int) -> Iterator[WrittenValues]:
    """Of all values those whose keys live on a shard."""
    for piece in pieces:
        keys = hash_ragged(piece.key, KEY_SEED)
        rows = np.flatnonzero(keys % np.uint64(shards) == np.uint64(shard))
        if len(rows):
            yield piece.take(rows)


def _remembered(
    state: State, homes: npt.NDArray[np.bool_], ids: IdWindowState
) -> Iterator[tuple[UsedIds, Verdicts, DeadlineSpan]]:
    """The ids of a shard and their verdicts, as they are kept: by the spans of their deadlines."""
    deadlines = state.ids.deadline
    spans = np.where(deadlines > 0, deadlines // ids.span_ms, -1)
    for number in np.unique(spans[homes]).tolist():
        ids_of_shard: UsedIds = state.ids.take(np.flatnonzero(homes & (spans == number)))
        span = DeadlineSpan(ids.ids, ids.verdicts)
        if number < 0:
            ids_of_shard = ids_of_shard.undated()
        else:
            span = ids.spans[number] = DeadlineSpan()
        at_home = np.isin(state.verdicts.seq, ids_of_shard.seq)
        yield ids_of_shard, state.verdicts.take(np.flatnonzero(at_home)), span


def _runs(
    kind: str, table: _Rows, runs: list[IdRun], ids: IdWindowState
) -> Iterator[tuple[str, bytes]]:
    """Yield a table as blobs, which ``runs`` then name."""
    ordered = table.take(np.argsort(table.seq, kind="stable"))
    for start in range(0, len(ordered), _RUN_ROWS):
        name = f"{kind}/{ids.next_blob}"
        ids.next_blob += 1
        part = ordered.take(np.arange(start, min(start + _RUN_ROWS, len(ordered))))
        runs.append(IdRun(name, len(part), int(part.seq[0]), int(part.seq[-1])))
        yield name, pack(part.flatten())


def state_of(
    about: dict[str, Any], meta: ShardState, blobs: BlobStore, values: Iterable[WrittenValues]
) -> State:
    """The state of a database with one shard, whose store holds ``blobs``.

    ``about``: the fields that the shard does not know. ``values``: of all keys, in the order of the
    keys' hashes.
    """
    spans = [DeadlineSpan(meta.ids.ids, meta.ids.verdicts), *meta.ids.spans.values()]
    remembered = (_load(blobs, run.name, UsedIds) for each in spans for run in each.ids)
    ids = _joined((_wanted(part.dated(), meta) for part in remembered), DatedIds.none())
    results_kept = (_load(blobs, run.name, Verdicts) for each in spans for run in each.verdicts)
    results = _joined((_known(part, ids.seq) for part in results_kept), Verdicts.none())
    checks.remembered(ids, results, meta.seq, is_new=True)
    keys, digest = _summed(checks.made(values, meta.seq))
    about_state = StateDescription(
        format=FORMAT,
        declares=meta.sorter.declares,
        expires=meta.expires,
        partitions=meta.config.partitions,
        id_window=meta.config.id_window,
        seq=meta.seq,
        ts_ms=meta.ts,
        keys=keys,
        digest=digest,
        **about,
    )
    return State(about_state, values, ids, results)


def _wanted(ids: DatedIds, meta: ShardState) -> DatedIds:
    """Those ids that are remembered still."""
    oldest = meta.seq - meta.config.id_window
    is_remembered = (ids.seq > oldest) | (ids.deadline >= max(meta.ts, 1))
    return ids.take(np.flatnonzero(is_remembered))


def _known(verdicts: Verdicts, seqs: npt.NDArray[np.int64]) -> Verdicts:
    """Those verdicts whose ids are remembered: at ``seqs``, in order."""
    own_seqs = verdicts.seq
    after = np.searchsorted(seqs, own_seqs, "right")
    return verdicts.take(np.flatnonzero(np.searchsorted(seqs, own_seqs, "left") < after))


def _summed(values: Iterable[WrittenValues]) -> tuple[int, str]:
    """Return how many values there are, and the digest of all, 32 hexadecimal digits: the same
    however they are divided on shards.
    """
    keys = low = high = 0
    for piece in values:
        keys += len(piece)
        lanes = item_lanes(piece).sum(axis=0, dtype=np.uint64).tolist()
        low, high = low + lanes[0], high + lanes[1]
    return keys, f"{high & _MASK:016x}{low & _MASK:016x}"


def _joined(parts: Iterable[_Rows], empty: _Rows) -> _Rows:
    """One table in the order of the seqs, which most are in already: copies are large."""
    table = type(empty).concat(list(parts) or [empty])
    seqs = table.seq
    if (seqs[1:] >= seqs[:-1]).all():
        return table
    return table.take(np.argsort(seqs, kind="stable"))


def _load(blobs: BlobStore, name: str, kind: type[_Rows]) -> _Rows:
    data = blobs.get(name)
    if data is None:
        raise BackupError(f"the blob {name} is missing from the state")
    return kind.unflatten(unpack(data)[1])
