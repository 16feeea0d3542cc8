"""Files of format 1, which stored every version by itself,
are taken over with all that they show.
"""

from __future__ import annotations

import random
import struct
from pathlib import Path

import lmdb
import pytest

from streamydb.read_model import ReadModel, StoreMismatchError, StoreMissingError, format_one
from streamydb.read_model.identity import identity
from streamydb.read_model.rows import Row
from tests.support.read_model import check_stored, rows_in, small_parts
from tests.unit.read_model.test_read_model_history import History, Reader, Retained

UP = bytes(range(1, 256)) + b"\xff"


def put_back(folder: Path, rows: list[Row]) -> None:
    """Give a file of today the tables of format 1."""
    with lmdb.open(str(folder), max_dbs=4) as env:
        about, versions = env.open_db(b"about"), env.open_db(b"versions")
        superseded = env.open_db(b"superseded")
        with env.begin(write=True) as txn:
            txn.drop(versions, delete=False)
            txn.delete(b"parts", db=about)
            txn.put(b"identity", identity(1, "bank"), db=about)
            txn.put(b"some", b"chunk", db=superseded)
            for row in rows:
                name = row.key.translate(UP) + struct.pack(">xQ", 2**64 - 1 - row.seq)
                head = struct.pack("<qB", row.ts_ms, len(row.txn_id))
                txn.put(name, head + row.txn_id + row.value, db=versions)


@pytest.mark.parametrize("seed", range(8))
def test_a_file_of_format_1_is_taken_over_and_goes_on(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(f"format 1, {seed}")
    small_parts(monkeypatch, rng)
    monkeypatch.setattr(format_one, "_ROWS", rng.choice([1, 7, 4_096]))
    history = History(rng, 2)
    history.ends = 0  # there were none
    reader = Reader(history, tmp_path / "m", Retained(rng.choice([0, 1, 1e9]), 0))
    for _ in range(8):
        history.plan()
        reader.step()
    rows = rows_in(reader.model)
    reader.model.close()
    put_back(tmp_path / "m", rows)
    with pytest.raises(StoreMissingError, match="has format 1, of an earlier release"):
        ReadModel.open(tmp_path / "m", "bank")
    reader.restart()
    history.ends = 0.3
    assert sorted(rows_in(reader.model)) == sorted(rows)
    reader.check()
    history.finish()
    while reader.model.latest().seq < history.seq:
        reader.step()
    reader.check()
    check_stored(reader.model)
    reader.model.close()
    with lmdb.open(str(tmp_path / "m"), max_dbs=4) as env, pytest.raises(lmdb.NotFoundError):
        env.open_db(b"superseded", create=False)


@pytest.mark.parametrize("write", [False, True])
def test_a_file_that_does_not_know_ends_is_refused(
    tmp_path: Path,
    write: bool,  # noqa: FBT001 - a case
) -> None:
    ReadModel.open(tmp_path / "m", "bank", write=True).close()
    with lmdb.open(str(tmp_path / "m"), max_dbs=4) as env, env.begin(write=True) as txn:
        txn.put(b"identity", identity(2, "bank"), db=env.open_db(b"about", txn))
    for _ in range(2):
        with pytest.raises(StoreMismatchError, match=r"has format 2, .*delete the folder"):
            ReadModel.open(tmp_path / "m", "bank", write=write)
