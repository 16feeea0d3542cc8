"""Parquet snapshots: what is damaged is found, what is loaded is what was written."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from pyarrow import parquet

from streamydb.backup.snapshots import (
    RowsDigest,
    SnapshotError,
    SnapshotManifest,
    SnapshotTail,
    read_manifest,
    read_rows,
    restoring,
)
from streamydb.backup.snapshots.manifest import FORMAT, MANIFEST, encode_manifest
from streamydb.backup.snapshots.restoring import CHUNK_ROWS_MAX, chunks
from streamydb.backup.snapshots.rows import COLUMNS, SnapshotRow
from streamydb.read_model import ReadModel, ReadModelError, StoreMismatchError, load
from streamydb.records import Put, Transaction, decode
from tests.support.memory_topic import MemoryTopic
from tests.support.read_model import example, follow, resolve, write


def make(
    folder: Path, rows: list[SnapshotRow], files: int = 2, **changes: object
) -> SnapshotManifest:
    """Write a snapshot of `example` (topic "memory", resolved up to seq 5) with some rows."""
    (folder / "data").mkdir(parents=True)
    digest, names = RowsDigest(), []
    for row in rows:
        digest.add(row.key, row.value, row.version, row.ts_ms, row.expires_ms)
    for number in range(files):
        part = rows[number * len(rows) // files : (number + 1) * len(rows) // files]
        columns = list(zip(*part, strict=True)) or [()] * len(COLUMNS)
        kinds = [pa.string(), pa.string(), pa.int64(), pa.int64(), pa.string(), pa.int64()]
        arrays = [
            pa.array([c.decode() if isinstance(c, bytes) else c for c in column], kind)
            for column, kind in zip(columns, kinds, strict=True)
        ]
        names.append(f"data/part-{number:05}.parquet")
        table = pa.table(arrays, names=COLUMNS)
        parquet.write_table(table, folder / names[-1], write_page_checksum=True)  # as Spark does
    fields: dict[str, object] = {
        "format": FORMAT, "database": "bank", "cluster": None, "topic": "memory", "seq": 5,
        "ts_ms": 50, "rows": digest.rows, "digest": digest.hex(), "files": names,
        "changes": {0: SnapshotTail(4, 5, {0: 6}), 1: SnapshotTail(4, 5, {0: 6})},
    }  # fmt: skip
    manifest = SnapshotManifest(**{**fields, **changes})  # type: ignore[arg-type]
    (folder / MANIFEST).write_bytes(encode_manifest(manifest))
    return manifest


B = [SnapshotRow(b"b", b"[4]", 4, 40, b"id4")]


def numbered(count: int, size: int = 1) -> list[SnapshotRow]:
    value = msgspec.json.encode("v" * size)
    return [SnapshotRow(f"k{n:06}".encode(), value, n + 1, n, b"t") for n in range(count)]


def test_a_digest_does_not_depend_on_order_or_division() -> None:
    rows = numbered(50)
    whole, shuffled = RowsDigest(), [RowsDigest(), RowsDigest(), RowsDigest()]
    for row in rows:
        whole.add(row.key, row.value, row.version, row.ts_ms)
    random.Random(1).shuffle(rows)
    for number, row in enumerate(rows):
        shuffled[number % 3].add(row.key, row.value, row.version, row.ts_ms)
    merged = shuffled[0].merge(shuffled[1:])
    assert (merged.rows, merged.hex()) == (whole.rows, whole.hex()) != (50, RowsDigest().hex())
    others = set()
    for key, value, version, ts_ms in (
        (b"ab", b"c", 1, 2),
        (b"a", b"bc", 1, 2),
        (b"ab", b"c", 2, 1),
        (b"ab", b"", 1, 2),
    ):
        digest = RowsDigest()
        digest.add(key, value, version, ts_ms)
        others.add(digest.hex())
    assert len(others) == 4


def test_a_read_model_from_a_snapshot_goes_on_like_one_that_read_everything(tmp_path: Path) -> None:
    topic = example()
    make(tmp_path / "snapshot", B)
    load(tmp_path / "snapshot", tmp_path / "loaded", "bank")
    topic.expire(0, 4)  # what is in the snapshot is not needed any more
    topic.expire(1, 3)
    write(topic, 1, 4, "b", "[4]")  # a repetition
    write(topic, 0, 6, "a", '"again"')
    write(topic, 1, 7, "b", None)
    resolve(topic, 7)
    with (
        ReadModel.open(tmp_path / "loaded", "bank", write=True) as model,
        ReadModel.open(tmp_path / "full", "bank", write=True) as full,
    ):
        assert model.latest().seq == model.oldest() == 5
        assert model.latest().offsets == {0: 6}
        with model.snapshot(5) as then:
            assert (then.ts_ms, [entry.key for entry in then.scan()]) == (50, ["b"])
        follow(model, topic, retention_seqs=100).close()
        everything = example()
        write(everything, 0, 6, "a", '"again"')
        write(everything, 1, 7, "b", None)
        resolve(everything, 7)
        follow(full, everything, retention_seqs=100).close()
        for seq in (5, 6, 7):
            with model.snapshot(seq) as one, full.snapshot(seq) as other:
                assert (one.digest(), one.ts_ms) == (other.digest(), other.ts_ms)
                assert one.history("b", 1) == other.history("b", 1)


@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_a_snapshot_between_resolved_seqs_misses_nothing(tmp_path: Path, at: int) -> None:
    """Positions as `write_snapshot` finds them: before the first record beyond the seq."""
    topic = example()
    with ReadModel.open(tmp_path / "full", "bank", write=True) as full:
        follow(full, topic, retention_seqs=100).close()
        with full.snapshot(at) as then:
            rows = [
                SnapshotRow(e.key.encode(), e.value, e.version, e.ts_ms, f"id{e.version}".encode())
                for e in then.scan()
            ]
        positions = {1: (1, 0), 2: (2, 2), 3: (4, 2), 4: (4, 3)}[at]
        tails = {n: SnapshotTail(place, 0, {0: 0}) for n, place in enumerate(positions)}
        make(tmp_path / "s", rows, seq=at, ts_ms=10 * at, changes=tails)
        load(tmp_path / "s", tmp_path / "loaded", "bank")
        with ReadModel.open(tmp_path / "loaded", "bank", write=True) as model:
            assert model.latest().seq == at
            follow(model, topic, retention_seqs=100).close()
            assert model.latest() == full.latest()
            for seq in range(at, 6):
                with model.snapshot(seq) as one, full.snapshot(seq) as other:
                    assert one.digest() == other.digest()


def test_what_is_loaded_is_checked_and_leaves_nothing_behind(tmp_path: Path) -> None:
    def refused(name: str, message: str, database: str = "bank") -> None:
        with pytest.raises((SnapshotError, ReadModelError), match=message):
            load(tmp_path / name, tmp_path / "loaded", database)
        assert not (tmp_path / "loaded").exists()
        assert not list(tmp_path.glob("*partial*"))

    rows = numbered(100)
    refused("nothing", "no snapshot")
    make(tmp_path / "other", rows)
    with pytest.raises(StoreMismatchError):
        load(tmp_path / "other", tmp_path / "loaded", "another")
    changed = [*rows[:50], rows[50]._replace(value=b'"changed"'), *rows[51:]]
    made = make(tmp_path / "changed", changed)
    right = make(tmp_path / "right", rows)
    wrong = msgspec.structs.replace(made, digest=right.digest)
    (tmp_path / "changed" / MANIFEST).write_bytes(encode_manifest(wrong))
    refused("changed", "files are damaged")
    make(tmp_path / "order", rows[50:] + rows[:50])
    refused("order", "out of order")
    make(tmp_path / "cut", rows)
    file = tmp_path / "cut" / "data" / "part-00001.parquet"
    file.write_bytes(file.read_bytes()[:-50])
    refused("cut", "cannot be read")
    file.unlink()
    refused("cut", "cannot be read")
    (tmp_path / "cut" / MANIFEST).write_bytes(b"{")
    refused("cut", "damaged")
    make(tmp_path / "later", rows, format=3)
    refused("later", "format 3, this program reads 2")
    make(tmp_path / "earlier", rows, format=1)
    refused("earlier", "format 1, this program reads 2")
    file = tmp_path / "right" / "data" / "part-00000.parquet"
    whole = file.read_bytes()
    parquet.write_table(parquet.read_table(file).drop_columns("expires_ms"), file)
    refused("right", "cannot be read")
    file.write_bytes(whole)
    load(tmp_path / "right", tmp_path / "loaded", "bank")
    with pytest.raises(ReadModelError, match="not empty"):
        load(tmp_path / "right", tmp_path / "loaded", "bank")


def test_ends_are_kept_in_read_models_and_new_databases_get_the_time_that_was_left(
    tmp_path: Path,
) -> None:
    rows = [*B, SnapshotRow(b"c", b"5", 5, 50, b"id5", 57)]
    manifest = make(tmp_path / "s", rows, ts_ms=52)
    other = make(tmp_path / "other", [*B, rows[1]._replace(expires_ms=58)], ts_ms=52)
    assert manifest.digest != other.digest
    load(tmp_path / "s", tmp_path / "loaded", "bank")
    with ReadModel.open(tmp_path / "loaded", "bank") as model, model.snapshot() as shown:
        assert [(e.key, e.expires_ms) for e in shown.scan()] == [("b", None), ("c", 57)]
    ((_, payload),) = chunks(tmp_path / "s", manifest)
    transaction = decode(payload)
    assert isinstance(transaction, Transaction)
    assert transaction.updates == (Put("b", b"[4]"), Put("c", b"5", 5))


def test_an_empty_snapshot(tmp_path: Path) -> None:
    manifest = make(tmp_path / "s", [], files=0, seq=0, ts_ms=0)
    assert list(read_rows(tmp_path / "s", manifest)) == []
    load(tmp_path / "s", tmp_path / "loaded", "bank")
    with ReadModel.open(tmp_path / "loaded", "bank") as model, model.snapshot() as snapshot:
        assert (snapshot.seq, snapshot.scan()) == (0, [])
    assert list(chunks(tmp_path / "s", manifest)) == []


@pytest.mark.parametrize(
    ("rows", "most"),
    [(numbered(2 * CHUNK_ROWS_MAX + 1), CHUNK_ROWS_MAX), (numbered(7, 200_000), 2), (B, 1)],
)
def test_a_new_database_gets_the_values_in_the_same_transactions_each_time(
    tmp_path: Path, rows: list[SnapshotRow], most: int
) -> None:
    manifest = make(tmp_path / "s", rows)
    made = list(chunks(tmp_path / "s", manifest))
    assert made == list(chunks(tmp_path / "s", manifest))
    assert max(count for count, _ in made) == most
    ids: list[str] = []
    values: dict[str, bytes] = {}
    for count, payload in made:
        transaction = decode(payload)
        assert isinstance(transaction, Transaction)
        assert len(transaction.updates) == count
        ids.append(transaction.id)
        for update in transaction.updates:
            assert isinstance(update, Put)
            values[update.key] = update.value
    assert values == {row.key.decode(): row.value for row in rows}
    assert len(set(ids)) == len(ids)
    assert {name.rpartition(":")[0] for name in ids} == {f"restore:bank:5:{manifest.digest[:16]}"}


def test_what_cannot_be_put_is_named(tmp_path: Path) -> None:
    deep = b"[" * 62 + b"]" * 62  # may come of an append to a list
    manifest = make(tmp_path / "s", [SnapshotRow(b"deep", deep, 1, 1, b"t")])
    with pytest.raises(SnapshotError, match=r"'deep'.*too-deep"):
        list(chunks(tmp_path / "s", manifest))


def test_nothing_is_appended_if_something_cannot_be_put(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database would have a part of it, and no repetition would complete that."""
    deep = b"[" * 62 + b"]" * 62
    make(tmp_path / "s", [*numbered(CHUNK_ROWS_MAX), SnapshotRow(b"\x7f", deep, 1, 1, b"t")])
    monkeypatch.setattr(restoring, "_known", lambda *_: set())
    with pytest.raises(SnapshotError, match="too-deep"):  # there is no Kafka to append to
        restoring.restore(tmp_path / "s", {}, "second")


def test_keys_that_nobody_may_put_are_left_out(tmp_path: Path) -> None:
    """With them a database that has procedures or constraints could not be loaded at all."""
    own = [SnapshotRow(key, b"1", 1, 1, b"t") for key in (b"$constraints", b"$procedures/a")]
    manifest = make(tmp_path / "s", [SnapshotRow(b"#", b"1", 1, 1, b"t"), *own, *B])
    ((count, payload),) = chunks(tmp_path / "s", manifest)
    transaction = decode(payload)
    assert isinstance(transaction, Transaction)
    keys = [update.key for update in transaction.updates if isinstance(update, Put)]
    assert keys == ["#", *(row.key.decode() for row in B)]
    assert count == len(keys)


def test_the_folder_of_a_snapshot_may_be_named_in_many_ways(tmp_path: Path) -> None:
    manifest = make(tmp_path / "s", B)
    names: list[Callable[[Path], Path | str]] = [Path, str, lambda p: f"file:{p}", Path.as_uri]
    for name in names:
        assert read_manifest(name(tmp_path / "s")) == manifest
        assert [row for batch in read_rows(name(tmp_path / "s"), manifest) for row in batch] == B
    assert MemoryTopic(1).topic_id == manifest.topic
