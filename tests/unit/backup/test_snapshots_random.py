"""Parquet snapshots of random states: damaged ones are refused, whole ones are what was written."""

from __future__ import annotations

import datetime as dt
import json
import random
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from streamydb.backup.snapshots import (
    RowsDigest,
    SnapshotError,
    SnapshotManifest,
    SnapshotTail,
    read_manifest,
    read_rows,
    restore,
    restoring,
)
from streamydb.backup.snapshots.manifest import MANIFEST
from streamydb.backup.snapshots.rows import COLUMNS, SnapshotRow
from streamydb.records import canonical
from streamydb.records.expiry import end_of
from streamydb.spark.snapshot import moment, shown
from streamydb.verify.oracle.core import Oracle
from tests.support.generators import VALUES
from tests.support.seeds import seeds
from tests.unit.backup.test_snapshots import make
from tests.unit.read_model.test_read_model_history import ODD_KEYS

MARKER = b'{"marker":1,"partitions":1,"sequencer":"s"}'
NUMBERS = st.integers(-(2**63), 2**63 - 1)
ENDS = st.none() | st.integers(1, 2**63 - 1)
ROWS = st.lists(
    st.tuples(st.binary(max_size=9), st.binary(max_size=9), NUMBERS, NUMBERS, ENDS),
    unique_by=lambda row: row[0], max_size=12,
)  # fmt: skip


def state(rng: random.Random, most: int = 60) -> list[SnapshotRow]:
    """Rows as a snapshot has them: by key, with canonical values."""
    keys = {*rng.sample(ODD_KEYS, rng.randrange(len(ODD_KEYS)))}
    keys |= {f"k/{rng.randrange(1000)}" for _ in range(rng.randrange(most))}
    made = []
    for key in sorted(keys, key=str.encode):
        version = rng.randrange(1, 6)
        value = rng.choice([version, "v" * rng.randrange(40), [True, {"é\n": 0.5}], {}])
        ts_ms = rng.choice([10 * version, 2**62])
        made.append(
            SnapshotRow(
                key.encode(),
                canonical(value),
                version,
                ts_ms,
                f"t{version}".encode(),
                rng.choice([None, None, 51, 1_000]),
            )
        )
    return made


def digest_of(rows: Sequence[tuple[Any, ...]]) -> RowsDigest:
    digest = RowsDigest()
    for row in rows:
        digest.add(*row)
    return digest


@given(ROWS, st.randoms(use_true_random=False), st.integers(1, 4))
def test_a_digest_is_that_of_the_rows_whatever_their_order_and_division(
    rows: list[tuple[bytes, bytes, int, int, int | None]], rng: random.Random, count: int
) -> None:
    whole = digest_of(rows)
    mixed = rng.sample(rows, len(rows))
    cuts = sorted(rng.choices(range(len(rows) + 1), k=count - 1))
    parts = [digest_of(mixed[a:b]) for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    merged = parts[0].merge(parts[1:])
    assert (merged.rows, merged.hex()) == (whole.rows, whole.hex())
    if rows:
        at = rng.randrange(len(rows))
        key, value, version, ts_ms, end = rows[at]
        others = [
            (key + b"\0", value, version, ts_ms, end), (key, value + b"\0", version, ts_ms, end),
            (key, value, version ^ 1, ts_ms, end), (key, value, version, ts_ms ^ 1, end),
            (key + value[:1], value[1:], version, ts_ms, end),
            (key, value, version, ts_ms, (end or 0) ^ 1), (key, value, version, ts_ms, None),
            (key, value + (end or 7).to_bytes(8, "little"), version, ts_ms, None),
        ]  # fmt: skip
        other = rng.choice([each for each in others if each != rows[at]])
        for changed in ([*rows[:at], other, *rows[at + 1 :]], [*rows, other], rows[1:]):
            assert digest_of(changed).hex() != whole.hex()


def read(folder: Path) -> tuple[SnapshotManifest, list[SnapshotRow]]:
    manifest = read_manifest(folder)
    return manifest, [row for batch in read_rows(folder, manifest) for row in batch]


@contextmanager
def damaged(rng: random.Random, folder: Path) -> Iterator[str]:
    """One file of a folder is another one for a while, or is gone; what was done to it."""
    path = rng.choice(sorted(each for each in folder.rglob("*") if each.is_file()))
    before = path.read_bytes()
    name = rng.choice(COLUMNS).encode()
    named = [before.find(name)] * (name in before)  # Parquet's schema
    at = rng.choice([*named, rng.randrange(len(before)), rng.randrange(len(before))])
    kind = rng.choice([0, 0, 1, 2, 3, 4, 5])
    size = rng.choice([1, 8, 512])
    after = [
        before[:at] + bytes([before[at] ^ 1 << rng.randrange(8)]) + before[at + 1 :],
        before[:at], before[:at] + b"\0" * len(before[at : at + size]) + before[at + size :],
        before[:at] + rng.randbytes(size) + before[at + size :], before + before, b"",
    ][kind]  # fmt: skip
    try:
        path.write_bytes(after)
        if kind == 5 and at % 2:
            path.unlink()
        yield f"{path.name}: kind {kind} at {at} of {len(before)}"
    finally:
        path.write_bytes(before)


@pytest.mark.parametrize("seed", range(seeds(20, 8)))
def test_what_is_damaged_is_refused_or_read_as_it_was(seed: int, tmp_path: Path) -> None:
    rng = random.Random(f"damage {seed}")
    rows, folder = state(rng), tmp_path / "s"
    manifest = make(
        folder, rows, files=rng.choice([1, 2, 5]), cluster=rng.choice([None, "c"]),
        changes={n: SnapshotTail(rng.randrange(99), rng.randrange(6), {0: 7}) for n in range(3)},
    )  # fmt: skip
    refused = 0
    for _ in range(25):
        with damaged(rng, folder) as what:
            try:
                found = read(folder)
            except SnapshotError:
                refused += 1
            else:
                assert found == (manifest, rows), what
    assert refused
    assert read(folder) == (manifest, rows)


def test_a_manifest_without_its_seal_is_damaged(tmp_path: Path) -> None:
    make(tmp_path, state(random.Random(1)))
    path = tmp_path / MANIFEST
    fields = json.loads(path.read_bytes())
    del fields["seal"]
    for seal in ({}, {"seal": "0" * 32}):
        path.write_text(json.dumps({**fields, **seal}))
        with pytest.raises(SnapshotError, match="damaged"):
            read_manifest(tmp_path)


@pytest.mark.parametrize("seed", range(10))
def test_ids_of_transactions_are_not_in_the_digest_and_yet_no_other_ones_are_read(
    seed: int, tmp_path: Path
) -> None:
    rng = random.Random(f"ids {seed}")
    rows = [*state(rng), SnapshotRow("\U0010ffff".encode() * 20, b"1", 1, 1, b"t1")]
    make(tmp_path / "s", rows, files=1)
    path = tmp_path / "s" / "data" / "part-00000.parquet"
    column = parquet.read_metadata(path).row_group(0).column(COLUMNS.index("txn_id"))
    end = (column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size
    data = path.read_bytes()
    for at in range(end - 12, end):
        wrong = bytes([data[at] ^ 1 << rng.randrange(8)])
        path.write_bytes(data[:at] + wrong + data[at + 1 :])
        with suppress(SnapshotError):
            assert read(tmp_path / "s")[1] == rows


@settings(max_examples=30)
@given(st.integers(0, 2**32))
def test_other_rows_than_those_of_the_manifest_are_refused(seed: int) -> None:
    rng = random.Random(seed)
    rows = [*state(rng, 9), SnapshotRow(b"z", b"1", 1, 1, b"t1")]
    at = rng.randrange(len(rows))
    row = rows[at]
    other = rng.choice([
        [], [row, row], [row._replace(value=b'"?"')], [row._replace(version=row.version + 1)],
        [row._replace(ts_ms=row.ts_ms - 1)], [row._replace(expires_ms=(row.expires_ms or 1) + 1)],
        [row._replace(key=row.key + b"\0")],
    ])  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        manifest = make(Path(folder), rows, files=1)
        make(Path(folder) / "other", [*rows[:at], *other, *rows[at + 1 :]], files=1)
        name = manifest.files[0]
        (Path(folder) / "other" / name).replace(Path(folder) / name)
        with pytest.raises(SnapshotError):
            read(Path(folder))


class Log:
    """A log that takes some records and then fails, and forgets what was on its way."""

    def __init__(self, rng: random.Random) -> None:
        self.records: list[bytes] = []
        self._rng = rng
        self._left = 0

    def __call__(self, *_: object) -> Self:
        """Stand for a reader or an appender of the log."""
        self._left = self._rng.randrange(8)
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def append(self, value: bytes) -> None:
        self._left -= 1
        if self._left < 0:
            raise SnapshotError("Kafka did not take it")
        self.records.append(value)
        while self._rng.random() < 0.1:
            self.records.append(self._rng.choice([value, MARKER]))

    def whole(self) -> Iterator[Any]:
        for value in self.records:
            yield SimpleNamespace(value=lambda value=value: value)


@pytest.mark.parametrize("seed", range(10))
def test_a_load_that_fails_again_and_again_puts_every_value(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(f"load {seed}")
    monkeypatch.setattr(restoring, "CHUNK_ROWS_MAX", rng.choice([1, 3, 500]))
    monkeypatch.setattr(restoring, "CHUNK_BYTES_MAX", rng.choice([50, 3_000, 500_000]))
    log = Log(rng)
    monkeypatch.setattr(restoring, "TopicReader", log)
    monkeypatch.setattr(restoring, "TopicAppender", log)
    every = state(rng)
    rows = [row for row in every if not row.key.startswith(b"$")]
    make(tmp_path / "s", every)
    done = None
    while done is None:
        with suppress(SnapshotError):
            done = restore(tmp_path / "s", {}, "second")
    assert (done.rows, done.left_out) == (len(rows), len(every) - len(rows))
    assert done.transactions >= done.appended
    oracle = Oracle("second")
    for offset, value in enumerate(log.records):
        if value != MARKER:
            oracle.apply(value, 0, offset, 1)
    found = {
        key.encode(): (bytes(value), end_of(value)) for key, (value, *_) in oracle.state.items()
    }
    left = {row.key: row.expires_ms and row.expires_ms - 50 + 1 for row in rows}  # all at 1 ms
    assert found == {row.key: (row.value, left[row.key]) for row in rows}
    again = restore(tmp_path / "s", {}, "second")
    assert (again.transactions, again.appended) == (done.transactions, 0)
    log.records.insert(
        rng.randrange(len(log.records) + 1),
        rng.choice([b'{"id":"x","reads":["a"]}', b"\xff", b'{"id":"\xff"}', b"[" * 9_999]),
    )
    with pytest.raises(SnapshotError, match="not of this snapshot"):
        restore(tmp_path / "s", {}, "second")


def test_keys_that_grow_by_their_escapes_are_put_in_transactions_that_are_not_too_large(
    tmp_path: Path,
) -> None:
    keys = sorted(f"{n:03}".encode() + b"\x01" * 477 for n in range(600))
    manifest = make(tmp_path / "s", [SnapshotRow(key, b"1", 1, 1, b"t") for key in keys])
    sizes = [len(payload) for _, payload in restoring.chunks(tmp_path / "s", manifest)]
    assert max(sizes) <= restoring.CHUNK_BYTES_MAX + 100


ZONES = st.integers(-1439, 1439).map(lambda minutes: dt.timezone(dt.timedelta(minutes=minutes)))


@given(st.integers(0, 2**63), st.datetimes(timezones=ZONES))
def test_a_seq_and_a_time_are_read_as_they_are_written(seq: int, time: dt.datetime) -> None:
    assert moment(str(seq)) == seq
    assert moment(time.isoformat()) == time
    with pytest.raises(SnapshotError, match="time zone"):
        moment(time.replace(tzinfo=None).isoformat())


@given(st.text(max_size=12) | st.text("0123456789-:T+Z.", max_size=30) | st.just("9" * 5_000))
def test_what_is_neither_is_refused(text: str) -> None:
    is_seq = text.isascii() and text.isdigit() and len(text) < 4_000
    try:
        found = moment(text)
    except SnapshotError:
        assert not is_seq
    else:
        assert isinstance(found, int) == is_seq


@given(name=st.text(max_size=9), seq=st.integers(0, 2**62), fresh=st.booleans(), about=VALUES)
def test_what_was_written_is_told(*, name: str, seq: int, fresh: bool, about: Any) -> None:
    manifest = SnapshotManifest(
        format=1, database=name, cluster=json.dumps(about), topic="t", seq=seq, ts_ms=1, rows=2,
        digest="d", changes={0: SnapshotTail(1, seq, {0: 2})}, files=[],
    )  # fmt: skip
    written = cast("Any", SimpleNamespace(folder=f"s/{name}", manifest=manifest, fresh=fresh))
    fields = json.loads(shown(written, as_json=True))
    assert msgspec.convert(fields, SnapshotManifest, strict=False) == manifest
    assert (fields["folder"], fields["fresh"]) == (f"s/{name}", fresh)
    told = shown(written, as_json=False)
    assert f"seq {seq}, 2 keys, d" in told
    assert told.startswith(f"s/{name}: {'written' if fresh else 'there already'}")
