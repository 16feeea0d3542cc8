"""The spool: blocks come back as they were, whatever becomes of the files."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import numpy as np
import pytest

from streamydb.frames.encoding import Part, pack
from streamydb.frames.shards import ShardConfig
from streamydb.parser.core import parse_transactions
from streamydb.pipeline import spool
from streamydb.pipeline.spool import NO_SPOOL, Spool, SpoolError
from tests.support.seeds import seeds

MAGIC = b"SDBF"


class Clock:
    """The number of the micro-batch."""

    number: int | None = 7


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    now = Clock()
    monkeypatch.setattr(spool, "_batch", lambda: now.number)
    return now


@pytest.fixture
def files(tmp_path: Path, clock: Clock) -> Spool:  # noqa: ARG001 - tasks have a number
    return Spool(tmp_path / "spool", 100)


def written(folder: Path) -> int:
    """Bytes of all files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_a_large_block_is_a_reference(files: Spool) -> None:
    block = os.urandom(5_000)
    with files.writer() as writer:
        made = writer.put([block[:10], block[10:]])
    assert made.startswith(MAGIC)
    assert len(made) < 100
    assert files.read(made) == block


def test_a_small_block_stays_itself_and_makes_no_file(files: Spool, tmp_path: Path) -> None:
    with files.writer() as writer:
        assert writer.put([b"x" * 50, b"y" * 49]) == b"x" * 50 + b"y" * 49
    assert not [*tmp_path.iterdir()]
    assert files.read(b"x" * 99) == b"x" * 99


def test_a_part_of_several_blocks_is_written_once(files: Spool, tmp_path: Path) -> None:
    shared = os.urandom(10_000)
    blocks = [[os.urandom(20), shared, os.urandom(30)] for _ in range(8)]
    with files.writer() as writer:
        made = [writer.put(parts) for parts in blocks]
    assert [files.read(each) for each in made] == [b"".join(parts) for parts in blocks]
    assert written(tmp_path) == 10_000 + 8 * 50


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(20, 8)))
def test_whatever_is_put_is_read(seed: int, files: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of all sizes, some of them shared, several tasks, a disk that takes little at a time or
    is full: what Spark moves leads to the block.
    """
    dice = random.Random(seed)
    write = os.write

    def may_be_full(file: int, data: bytes) -> int:
        if dice.random() < 0.03:
            raise OSError(errno.ENOSPC, "no space left on device")
        return write(file, data[: dice.choice([1 << 20, 7])])

    monkeypatch.setattr(os, "write", may_be_full)
    moved = []
    for _ in range(5):
        parts = [dice.randbytes(dice.choice([0, 1, 40, 200])) for _ in range(6)]
        with files.writer() as writer:
            for _ in range(20):
                own: list[Part] = [*parts, memoryview(dice.randbytes(30))]
                block = dice.choices(own, k=dice.randrange(6))
                moved.append((writer.put(block), b"".join(block)))
    dice.shuffle(moved)
    assert [files.read(made) for made, _ in moved] == [block for _, block in moved]
    kinds = {(made.startswith(MAGIC), len(block) < 100) for made, block in moved}
    assert (True, False) in kinds, "large blocks lie in files"
    assert (True, True) not in kinds


def test_blocks_of_records_share_what_all_shards_get(files: Spool, tmp_path: Path) -> None:
    config = ShardConfig("bank", "inc", 8, 1, 100)
    update = b'{"op":"put","key":"%040d","value":1}'
    values = [(b'{"id":"t%d","updates":[' + update + b"]}") % (i, i) for i in range(500)]
    places = np.zeros(500, np.int32), np.arange(500), np.full(500, 9)
    routed = [*parse_transactions(*places, values, config.shards)]
    with files.writer() as writer:
        made = [writer.put(each.pieces()) for each in routed]
    blocks = [each.block for each in routed]
    assert [files.read(each) for each in made] == blocks
    assert written(tmp_path) < sum(map(len, blocks)) / 3


def test_files_of_earlier_batches_are_removed(files: Spool, clock: Clock, tmp_path: Path) -> None:
    made = {}
    for number in (7, 8, 9):
        clock.number = number
        with files.writer() as writer:
            made[number] = writer.put([b"%d" % number * 200])
    clock.number = 9
    files.forget_earlier()
    assert files.read(made[9]) == b"9" * 200
    for number in (7, 8):
        with pytest.raises(SpoolError, match="cannot be read"):
            files.read(made[number])
    assert [path.name for path in (tmp_path / "spool").iterdir()] == ["9"]


def test_a_file_that_is_cut_off_is_told(files: Spool, tmp_path: Path) -> None:
    with files.writer() as writer:
        made = writer.put([b"x" * 1_000])
    [file] = [path for path in tmp_path.rglob("*") if path.is_file()]
    os.truncate(file, 999)
    with pytest.raises(SpoolError, match="cut off"):
        files.read(made)


def test_what_cannot_be_written_goes_through_spark(files: Spool, tmp_path: Path) -> None:
    (tmp_path / "spool").write_text("in the way")
    with files.writer() as writer:
        assert writer.put([b"x" * 1_000]) == b"x" * 1_000


def test_outside_of_a_micro_batch_nothing_is_written_or_removed(
    files: Spool, clock: Clock, tmp_path: Path
) -> None:
    clock.number = None
    files.forget_earlier()
    with files.writer() as writer:
        assert writer.put([b"x" * 1_000]) == b"x" * 1_000
    assert not [*tmp_path.iterdir()]


def test_without_a_folder_blocks_stay_as_they_are(clock: Clock) -> None:
    assert clock.number == 7
    NO_SPOOL.forget_earlier()
    with NO_SPOOL.writer() as writer:
        assert writer.put([b"x" * 100_000]) == b"x" * 100_000
    assert NO_SPOOL.read(MAGIC + b"x") == MAGIC + b"x"


def test_no_block_is_taken_for_a_reference() -> None:
    assert not pack({}, kind="token").startswith(MAGIC)
