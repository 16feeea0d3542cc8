"""A checkpoint folder after a power cut, or copied while it ran: where it goes on, what moves."""

from __future__ import annotations

import shutil
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from streamydb.errors import ConfigurationError
from streamydb.pipeline.background import read_by_all
from streamydb.pipeline.repair import Resumption, mend, offsets_of
from streamydb.pipeline.run import explain


def written(path: Path, data: bytes) -> Path:
    """A file with its checksums, as Spark writes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    sums = (zlib.crc32(data[at : at + 512]).to_bytes(4, "big") for at in range(0, len(data), 512))
    head = b"crc\0" + (512).to_bytes(4, "big")
    path.with_name(f".{path.name}.crc").write_bytes(head + b"".join(sums))
    return path


def snapshot(folder: Path, version: int) -> None:
    (folder / "SSTs").mkdir(parents=True, exist_ok=True)
    (folder / "SSTs" / f"{version}.sst").write_bytes(b"x" * 7)
    listed = f'{{"localFileName":"a","dfsSstFileName":"{version}.sst","sizeBytes":7}}'
    draft = folder / "draft"
    with zipfile.ZipFile(draft, "w") as archive:
        archive.writestr("metadata", f'v1\n{{"sstFiles":[{listed}]}}')
    written(folder / f"{version}.zip", draft.read_bytes())
    draft.unlink()


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Batches 4 to 9 are done, 10 has begun; two shards, with a snapshot of version 6."""
    query = tmp_path / "checkpoint" / "query"
    written(query / "metadata", b'{"id":"x"}')
    for batch in range(4, 11):
        read = f'{{"a.transactions":{{"0":{batch}0}}}}', f'{{"a.feedback":{{"0":{batch}}}}}'
        lines = "v1", '{"conf":{}}', *read
        written(query / "offsets" / str(batch), "\n".join(lines).encode())
    for batch in range(4, 10):
        written(query / "commits" / str(batch), b'v1\n{"nextBatchWatermarkMs":0}')
    for shard in range(2):
        folder = query / "state" / "0" / str(shard)
        for version in range(7, 12):
            written(folder / f"{version}.changelog", b"changes" * 200)
        snapshot(folder, 6)
    return query.parent


def empty(path: Path) -> None:
    path.write_bytes(b"")


def test_a_new_and_a_whole_one_are_left_alone(checkpoint: Path) -> None:
    assert mend(checkpoint.with_name("new"), 2, 1) is None
    before = sorted(checkpoint.rglob("*"))
    assert mend(checkpoint, 2, 1) == Resumption(9, [], 0)
    assert sorted(checkpoint.rglob("*")) == before
    assert offsets_of(checkpoint, 9) == {"a.transactions": {0: 90}, "a.feedback": {0: 9}}
    assert offsets_of(checkpoint, 99) == offsets_of(checkpoint, -1) == {}


def test_feedback_is_needed_from_the_oldest_batch_on_record(checkpoint: Path) -> None:
    assert read_by_all(checkpoint, "a.feedback") == {0: 4}
    assert read_by_all(checkpoint.with_name("new"), "a.feedback") == {}


@pytest.mark.fault(
    34, "each newest file empty, torn or gone, one or several", "goes on after the newest whole one"
)
@pytest.mark.parametrize(
    ("name", "damage", "batch", "gone"),
    [
        ("offsets/10", empty, 9, ["offsets/10", "state/0/0/11.changelog"]),
        ("offsets/10", Path.unlink, 9, ["state/0/0/11.changelog", "state/0/1/11.changelog"]),
        ("commits/9", empty, 9, ["commits/9"]),
        ("commits/9", Path.unlink, 9, []),
        ("offsets/9", Path.unlink, 8, ["offsets/10", "commits/9", "state/0/0/10.changelog"]),
        ("state/0/1/10.changelog", empty, 8, ["offsets/10", "commits/9"]),
        ("state/0/1/10.changelog", Path.unlink, 8, ["offsets/10", "commits/9"]),
        ("state/0/0/8.changelog", empty, 6, ["offsets/8", "offsets/9", "commits/7"]),
        ("state/0/0/11.changelog", empty, 9, []),
    ],
)
def test_it_goes_on_after_the_newest_whole_batch(
    checkpoint: Path, name: str, damage: Callable[[Path], object], batch: int, gone: list[str]
) -> None:
    damage(checkpoint / "query" / name)
    found = mend(checkpoint, 2, 1)
    assert found is not None
    assert found.batch == batch
    assert set(gone) <= set(found.moved)
    for moved in found.moved:
        assert not (checkpoint / "query" / moved).exists()
        assert (checkpoint / "damaged-1" / "query" / moved).exists()
    assert mend(checkpoint, 2, 1) == Resumption(batch, [], 0)


def test_a_torn_file_is_known_by_its_checksums(checkpoint: Path) -> None:
    file = checkpoint / "query/state/0/0/10.changelog"
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    found = mend(checkpoint, 2, 1)
    assert found is not None
    assert (found.batch, found.again) == (8, 1)


def test_a_damaged_snapshot_is_passed_over(checkpoint: Path) -> None:
    for shard in range(2):
        snapshot(checkpoint / f"query/state/0/{shard}", 9)
    (checkpoint / "query/state/0/1/SSTs/9.sst").unlink()
    found = mend(checkpoint, 2, 1)
    assert found == Resumption(9, ["state/0/1/9.zip"], 0)


def test_a_snapshot_of_a_batch_that_is_done_again_is_set_aside(checkpoint: Path) -> None:
    """The attempt that is repeated may plan otherwise, and its changes come on top of it."""
    snapshot(checkpoint / "query/state/0/1", 11)
    assert mend(checkpoint, 2, 1) == Resumption(9, ["state/0/1/11.zip"], 0)
    assert (checkpoint / "query/state/0/1/11.changelog").exists(), "Spark writes it anew"


@pytest.mark.fault(33, "a folder copied while it ran: its parts are of different moments")
def test_a_copy_taken_while_it_ran_goes_on_where_its_parts_meet(checkpoint: Path) -> None:
    """Commits are copied first and states last, so the commits are the oldest."""
    query = checkpoint / "query"
    for batch in (7, 8, 9):
        (query / "commits" / str(batch)).unlink()
    found = mend(checkpoint, 2, 1)
    assert found == Resumption(9, [], 0), "offsets of 10 say that 9 was done"


@pytest.mark.fault(33, "a copy whose states are all of later batches", "the command is named")
def test_nothing_whole_names_a_file_and_the_command(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint / "query/state/0/1")
    with pytest.raises(ConfigurationError, match=r"lacks files .* `streamydb rebuild`"):
        mend(checkpoint, 2, 1)
    for path in (checkpoint / "query/offsets").glob("?*"):
        empty(path)
    with pytest.raises(ConfigurationError, match=r"offsets/10 is damaged; .* `streamydb rebuild`"):
        mend(checkpoint, 2, 1)


def test_a_state_without_a_whole_file_names_one_of_its_own(checkpoint: Path) -> None:
    for path in (checkpoint / "query/state/0/1").glob("[0-9]*"):
        empty(path)
    with pytest.raises(ConfigurationError, match=r"state/0/1/\d+\.(zip|changelog) is damaged"):
        mend(checkpoint, 2, 1)


def test_a_first_batch_that_was_torn_is_begun_again(tmp_path: Path) -> None:
    query = tmp_path / "query"
    written(query / "metadata", b"")
    written(query / "offsets" / "0", b"")
    written(query / "state/0/0/1.changelog", b"x")
    found = mend(tmp_path, 1, 1)
    assert found == Resumption(-1, ["offsets/0", "state/0/0/1.changelog"], 0)
    assert '"id"' in (query / "metadata").read_text()


def test_the_state_of_another_store_is_not_judged(checkpoint: Path) -> None:
    for shard in range(2):
        folder = checkpoint / f"query/state/0/{shard}"
        shutil.rmtree(folder)
        written(folder / "10.delta", b"x")
    assert mend(checkpoint, 2, 1) == Resumption(9, [], 0)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("Incomplete log file in the offset commit log", "do not fit each other"),
        ("Could not read records in offset [1, 2) for topic partition a.feedback-0", "feedback"),
        ("[KAFKA_DATA_LOSS.X] some data of a.feedback-0 is gone", "feedback of a.feedback-0"),
        ("Concurrent update to the commit log. Multiple jobs", "do not fit each other"),
    ],
)
def test_what_spark_says_of_a_checkpoint_names_the_command(said: str, told: str) -> None:
    found = explain(["the query failed", said])
    assert told in found
    assert "`streamydb rebuild`" in found
