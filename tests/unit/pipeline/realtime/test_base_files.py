"""The base in a shard's local files: whole or not there, and not changed by what comes after."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from streamydb.errors import ConfigurationError, InvariantViolation
from streamydb.frames.blobs import HEAD_BYTES
from streamydb.frames.plans import Life
from streamydb.frames.shards import ShardConfig
from streamydb.key_processor.base import decode_base
from streamydb.local import shard_files
from streamydb.local.shard_files import LmdbValues
from streamydb.parser.last_reads import mark_of
from streamydb.pipeline.realtime.core import (
    NotForThisGear,
    OpenBase,
    RealTimeShard,
    Surroundings,
    TailRecord,
)
from streamydb.pipeline.realtime.files import base_behind, opened_base
from streamydb.pipeline.realtime.rebase import Rebase
from streamydb.sorter.state import LogEnd
from streamydb.txn_processor import outputs as o
from tests.support.micro_batches import CONFIG, MicroBatches, put


@pytest.fixture(params=["values in LMDB", "values in segments"])
def gear(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[MicroBatches]:
    if request.param == "values in segments":
        monkeypatch.setattr(shard_files, "_RECENT_PAGES_MAX", 0)
        monkeypatch.setattr(shard_files, "_WHOLE_SHARE", 1 << 60)
    made = MicroBatches(tmp_path)
    yield made
    LmdbValues.close(made.folder)


def opened(tmp_path: Path, config: ShardConfig = CONFIG) -> OpenBase:
    found = opened_base(tmp_path, config)
    assert found is not None
    return found


def text(base: OpenBase, key: bytes) -> bytes | None:
    (item,) = base.values.load([key])
    return None if item is None else item[HEAD_BYTES:]


def test_a_base_has_what_was_executed_and_nothing_that_came_later(
    gear: MicroBatches, tmp_path: Path
) -> None:
    gear.execute(put("t1", "a", "one"), put("t2", "b", "two", ttl_ms=50))
    base = opened(tmp_path)
    assert (base.base.state.seq, base.base.position) == (2, 2)
    gear.execute(put("t3", "a", "three"), put("t4", "c", "four"))
    assert text(base, b"a") == b'"one"'
    assert text(base, b"c") is None
    assert [key for key, _ in base.values.items(b"")] == [b"a", b"b"]
    assert len(list(base.values.ends(b""))) == 1
    newer = opened(tmp_path)
    assert (newer.base.state.seq, newer.base.position) == (4, 4)
    assert text(newer, b"a") == b'"three"'
    for each in (base, newer):
        each.values.close()


def test_a_base_tells_which_log_it_has_executed(gear: MicroBatches, tmp_path: Path) -> None:
    transactions = [put("t1", "a", 1), put("t2", "b", 2)]
    gear.execute(*transactions)
    found = opened(tmp_path)
    read = found.base.read
    assert read is not None
    assert (read.position, read.stamp) == (2, 1_001)
    last = msgspec.json.encode(transactions[-1])
    LogEnd(2, 1, 1_001, mark_of(last)).require(0, read)
    with pytest.raises(InvariantViolation, match="the log is not what"):
        LogEnd(2, 1, 1_001, mark_of(b"another one")).require(0, read)
    found.values.close()


def test_a_gear_begins_behind_a_large_record(gear: MicroBatches, tmp_path: Path) -> None:
    assert base_behind(-1, tmp_path, CONFIG) is None
    for number in range(3):
        gear.execute(put(f"t{number}", "a", number))
        positions = [base_behind(offset, tmp_path, CONFIG) for offset in (-1, 0, 1, 2)]
        assert [base is not None for base in positions] == [True, *(n <= number for n in range(3))]


def test_the_gear_goes_on_where_the_base_ends(gear: MicroBatches, tmp_path: Path) -> None:
    gear.execute(put("t1", "a", 1))
    config = msgspec.structs.replace(CONFIG, incarnation="gear")
    shard = RealTimeShard(Surroundings(config, Life("gear"), 1), opened(tmp_path))
    shard.play(leads=True, covered=1)
    add = {"op": "add", "key": "a", "by": 2}
    transaction = msgspec.json.encode({"id": "t2", "updates": [add], "reads": ["a"]})
    group = shard.take([TailRecord(0, 1_000, b"read before"), TailRecord(1, 1_001, transaction)])
    results = [each for each in group.outputs if each.topic == o.RESULTS]
    assert b'"reads":{"a":3}' in (results[0].values.tolist()[0] or b"")
    assert group.seq == 2
    assert group.resolved is not None
    with pytest.raises(NotForThisGear, match="offset 2 was used before the base"):
        shard.take([TailRecord(2, 1_002, msgspec.json.encode(put("t1", "a", 1)))])
    assert shard.position == 2, "the other gear goes on with that record"
    gear.execute(msgspec.json.decode(transaction))
    successor = Rebase(shard, opened(tmp_path)).advance(10)
    assert successor is not None
    assert (successor.base_seq, len(successor.tail.records)) == (2, 0)
    assert Rebase(successor, opened(tmp_path)).advance(10) is not None


def test_a_base_of_another_history_is_refused(gear: MicroBatches, tmp_path: Path) -> None:
    gear.execute(put("t1", "a", 1))
    config = msgspec.structs.replace(CONFIG, incarnation="gear")
    shard = RealTimeShard(Surroundings(config, Life("gear"), 1), opened(tmp_path))
    shard.play(leads=True, covered=1)
    shard.take([TailRecord(1, 1_001, msgspec.json.encode(put("t2", "a", 2)))])
    gear.execute(put("other", "a", 3))
    with pytest.raises(InvariantViolation, match="or to other values"):
        Rebase(shard, opened(tmp_path)).advance(10)


def test_there_is_no_base_while_the_file_is_elsewhere(gear: MicroBatches, tmp_path: Path) -> None:
    assert opened_base(tmp_path, CONFIG) is None
    gear.execute(put("t1", "a", 1))
    values = LmdbValues(gear.folder)
    values.apply(values.position(), (99, "elsewhere"), [], [])
    assert opened_base(tmp_path, CONFIG) is None
    other = msgspec.structs.replace(CONFIG, digest_interval=7)
    assert opened_base(tmp_path, other) is None


def test_there_is_no_base_without_its_ids(gear: MicroBatches, tmp_path: Path) -> None:
    gear.execute(put("t1", "a", 1))
    shutil.rmtree(gear.folder / "ids")
    assert opened_base(tmp_path, CONFIG) is None


@pytest.mark.parametrize(
    "config",
    [
        msgspec.structs.replace(CONFIG, partitions=2),
        msgspec.structs.replace(CONFIG, shards=2),
        msgspec.structs.replace(CONFIG, grouping="single"),
    ],
)
def test_other_databases_have_none(config: ShardConfig, tmp_path: Path) -> None:
    assert opened_base(tmp_path, config) is None


def test_a_base_of_another_release_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        decode_base(b"\xc1")
