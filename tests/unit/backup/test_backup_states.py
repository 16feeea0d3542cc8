"""States of backups: gone through in pieces, divided on shards."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import msgspec
import numpy as np
import pytest

from streamydb.backup import BackupError, State, StateFolder, start_blobs
from streamydb.backup.state import FORMAT, Pieces, StateDescription, state_of
from streamydb.frames import program as p
from streamydb.frames.encoding import pack
from streamydb.frames.hashing import KEY_SEED, hash_ragged
from streamydb.frames.shards import ShardConfig
from streamydb.frames.table import Ragged
from streamydb.frames.value_rows import Verdicts, WrittenValues
from streamydb.key_processor.id_rows import DatedIds
from streamydb.key_processor.idwindow import DeadlineSpan, IdRun, IdWindowState
from streamydb.key_processor.memory import MemoryBlobs, MemoryValues
from streamydb.key_processor.merge import merged, sorted_by_hash
from streamydb.key_processor.state import ShardState
from streamydb.key_processor.values import ShardValues, ValuesState
from streamydb.sorter.state import SorterState

MEBIBYTE = 1 << 20
ABOUT = StateDescription(
    format=FORMAT, database="bank", log="log", partitions=1, id_window=100, seq=9,
    ts_ms=90, positions={}, keys=0, digest="0" * 32,
)  # fmt: skip


def values(start: int, end: int, size: int) -> WrittenValues:
    """Texts of ``size`` bytes under numbered keys."""
    n = end - start
    data = np.full(n * size, ord("x"), np.uint8)
    data[::size] = data[size - 1 :: size] = ord('"')
    keys = Ragged.of([b"k%d" % number for number in range(start, end)])
    return WrittenValues(
        np.full(n, p.OPAQUE, np.uint8),
        np.zeros(n, np.int64),
        np.arange(start + 1, end + 1),
        keys,
        Ragged(data, np.arange(n + 1) * size),
    )


def state(pieces: list[WrittenValues]) -> State:
    """A state with these values."""
    last = max(int(piece.version[-1]) for piece in pieces)
    about = msgspec.structs.replace(ABOUT, seq=last, keys=sum(map(len, pieces)))
    found = list(merged([[sorted_by_hash(piece)] for piece in pieces], drop_absent=True))
    return State(about, found, DatedIds.none(), Verdicts.none())


def test_a_state_is_divided_on_shards(tmp_path: Path) -> None:
    folder, pieces = StateFolder(tmp_path / "state"), [values(0, 700, 20), values(700, 900, 99)]
    folder.write(state(pieces))
    config = ShardConfig("bank", "x", 3, 1, 100)
    found: dict[bytes | None, int] = {}
    for shard in range(3):
        blobs = MemoryBlobs(dict(start_blobs(folder.read(), config, shard)))
        meta = msgspec.msgpack.decode(blobs.blobs["meta"], type=ShardState)
        own = ShardValues(meta.values, blobs, MemoryValues())
        table = own.everything()
        keys = table.key
        assert (hash_ragged(keys, KEY_SEED) % np.uint64(3) == shard).all()
        assert own.read(keys).version.tolist() == table.version.tolist()
        found.update(zip(keys.tolist(), table.version.tolist(), strict=True))
        own.apply(values(0, 2, 50))
        assert own.read(Ragged.of([b"k1"])).text.lengths().tolist() == [50]
    assert found == {b"k%d" % number: number + 1 for number in range(900)}


def test_a_state_is_never_held_as_a_whole(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path)
    whole = state([values(start, start + 1_000, 2_000) for start in range(0, 50_000, 1_000)])
    folder.write(whole)
    del whole
    config, total = ShardConfig("bank", "x", 1, 1, 100), 0
    tracemalloc.start()
    for _, data in start_blobs(folder.read(), config, 0):
        total += len(data)
    StateFolder(tmp_path / "copy").write(folder.read())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total > 95 * MEBIBYTE
    assert peak < 70 * MEBIBYTE, "some parts of 8 MiB"


def remembering(seqs: list[range], deadline: int = 0) -> tuple[MemoryBlobs, ShardState]:
    """A shard that remembers ids of some seqs, a run each, in as many spans of deadlines."""
    config, blobs, ids = ShardConfig("bank", "x", 1, 1, 100), MemoryBlobs({}), IdWindowState(100)
    for number, span in enumerate(seqs):
        some = np.array(span, np.int64)
        hashes, zeros = np.zeros(len(some), np.uint64), np.zeros(len(some), np.int64)
        table = DatedIds(
            some.astype(np.uint64),
            hashes,
            hashes,
            some,
            zeros,
            zeros,
            zeros,
            np.full(len(some), deadline, np.int64),
        )
        blobs.put(f"ids/{number}", pack(table.flatten()))
        run = IdRun(f"ids/{number}", len(some), span[0], span[-1])
        ids.spans[number] = DeadlineSpan([run])
    last = max(span[-1] for span in seqs)
    meta = ShardState(config, SorterState(1, {}), ValuesState(), ids, seq=last, ts=50)
    return blobs, meta


def made(blobs: MemoryBlobs, meta: ShardState) -> State:
    """The state of a shard without values."""
    return state_of({"database": "bank", "log": "log", "positions": {}}, meta, blobs, [])


def test_ids_come_in_order_and_those_that_are_forgotten_not_at_all() -> None:
    found = made(*remembering([range(2, 400, 2), range(1, 400, 2)], deadline=49))
    assert found.ids.seq.tolist() == [*range(300, 400)]
    found = made(*remembering([range(2, 400, 2), range(1, 400, 2)], deadline=50))
    assert found.ids.seq.tolist() == [*range(1, 400)]


def test_ids_are_not_held_many_times() -> None:
    size = 1_000
    blobs, meta = remembering([range(1 + at, 1 + at + size) for at in range(0, 200_000, size)], 50)
    tracemalloc.start()
    found = made(blobs, meta)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found.ids) == 200_000
    assert peak < 2.3 * sum(column.nbytes for column in found.ids.flatten().values())


def test_a_damaged_value_is_found(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path)
    folder.write(state([values(0, 10, 20)]))
    folder.require_whole()
    path = tmp_path / "values-00000.part"
    path.write_bytes(path.read_bytes()[:-30] + b"?" + path.read_bytes()[-29:])
    with pytest.raises(BackupError, match=r"values-00000\.part is damaged"):
        folder.require_whole()
    with pytest.raises(BackupError, match=r"values-00000\.part is damaged"):
        list(folder.read().values)


def test_pieces_can_be_gone_through_again() -> None:
    pieces = Pieces(lambda: iter([values(0, 1, 9)]))
    assert len(list(pieces)) == len(list(pieces)) == 1
