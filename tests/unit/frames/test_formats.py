"""A later format is refused, wherever bytes are read, with its number and what to do."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import msgspec
import pytest

from streamydb.backup import BackupFolder, State, StateFolder
from streamydb.backup.manifest import FORMAT as BACKUP_FORMAT
from streamydb.backup.manifest import BackupManifest
from streamydb.backup.pieces import Piece, decode_piece, encode_piece
from streamydb.backup.snapshots import read_manifest
from streamydb.backup.state import FORMAT as STATE_FORMAT
from streamydb.backup.state import StateDescription
from streamydb.errors import ConfigurationError, StreamyError
from streamydb.frames.encoding import pack, unpack
from streamydb.frames.messages import Role
from streamydb.frames.plans import Life
from streamydb.frames.protocol import FORMAT, BlockReader
from streamydb.frames.shards import ShardConfig
from streamydb.frames.value_rows import Verdicts
from streamydb.kafka.columns import OneRecord, RecordColumns
from streamydb.key_processor.core import KeyTransactionProcessor
from streamydb.key_processor.id_rows import DatedIds
from streamydb.key_processor.locking.core import SingleShard
from streamydb.key_processor.memory import MemoryBlobs, MemoryIdTables, MemoryValues
from streamydb.local.folder import DatabaseFolder, DatabaseRecord
from streamydb.pipeline.record import read_record, recorded_config
from streamydb.pipeline.standby.agreement import Agreement
from streamydb.read_model import ReadModel
from streamydb.read_model.core import TopicProgress, plan
from streamydb.records import (
    Rejection,
    decode,
    decode_change,
    decode_dead_letter,
    decode_marker,
    decode_result,
)
from streamydb.records.control import LeaderClaim, decode_message, encode_message
from streamydb.settings import Settings
from streamydb.txn_processor.outputs import open_output
from tests.support.read_model import change
from tests.unit.backup.test_snapshots import make

ROLE = Role("x", leads=True, covered=0)
CONFIG = ShardConfig("bank", "x", 1, 1, 100)
LIFE = Life("a")
SETTINGS = Settings(database="bank", bootstrap="127.0.0.1:1")


def raised(value: bytes) -> bytes:
    """A JSON object of a later format."""
    return json.dumps({**json.loads(value), "format": 7}).encode()


def result(_: Path) -> None:
    decode_result(
        raised(
            b'{"id":"a","seq":1,"ts_ms":1,"status":"committed","reads":{},"failed":[],"code":null,'
            b'"source":{"partition":0,"offset":0}}'
        )
    )


def a_change(_: Path) -> None:
    decode_change(raised(change(1, "1")))


def resolved(_: Path) -> None:
    decode_change(raised(b'{"resolved":1,"ts_ms":1,"offsets":{"0":1}}'))


def dead_letter(_: Path) -> None:
    decode_dead_letter(raised(b'{"seq":1}'))


def digest(_: Path) -> None:
    told = b'{"seq":10,"shard":0,"interval":10,"state":"a","outcomes":"b","shards":1}'
    Agreement(10, 1).take(b"0/10/x", raised(told), live=True)


def control(_: Path) -> None:
    decode_message(raised(encode_message(LeaderClaim(log="l", pipeline="p", epoch=1))))


def change_into_a_read_model(_: Path) -> None:
    records = RecordColumns.of([OneRecord(0, 0, b"a", raised(change(1, "1")))])
    plan(records, {}, _progress(), "bank")


def resolved_into_a_read_model(_: Path) -> None:
    value = raised(b'{"resolved":1,"ts_ms":1,"offsets":{"0":1}}')
    plan(RecordColumns.of([OneRecord(0, 0, None, value)]), {}, _progress(), "bank")


def _progress() -> TopicProgress:
    from streamydb.read_model.core import PartitionProgress

    return TopicProgress("t", {0: PartitionProgress()})


def block(_: Path) -> None:
    BlockReader(Role).read(pack({}, **{**ROLE.header(), "format": 7}))


def output(_: Path) -> None:
    open_output(pack({}, kind="output", topic=0, partition=0, format=7), "bank")


def layout(_: Path) -> None:
    unpack(b"SDB7" + pack({})[4:])


def shard(_: Path) -> None:
    _state(KeyTransactionProcessor, "planner")


def single_shard(_: Path) -> None:
    _state(SingleShard, "single")


def _state(kind: Any, grouping: str) -> None:
    """A state whose structure a later release has changed, too."""
    config = msgspec.structs.replace(CONFIG, grouping=grouping)
    blobs = MemoryBlobs()
    list(kind(config, 0, blobs, MemoryValues(), MemoryIdTables(), LIFE).step([]))
    meta = msgspec.msgpack.decode(blobs.get("meta") or b"")
    meta["config"]["format"], meta["sorter"] = 7, "otherwise"
    blobs.put("meta", msgspec.msgpack.encode(meta))
    kind(config, 0, blobs, MemoryValues(), MemoryIdTables(), LIFE)


def checkpoint(folder: Path) -> None:
    recorded_config(folder, SETTINGS, 1)
    path = folder / "streamydb.json"
    path.write_bytes(json.dumps({"format": 7, "all": "new"}).encode())
    read_record(folder)


def read_model(folder: Path) -> None:
    ReadModel.open(folder / "m", "bank", write=True).close()
    env = lmdb.open(str(folder / "m"), max_dbs=8)
    about = env.open_db(b"about")
    with env.begin(about, write=True) as txn:
        for key, value in txn.cursor():
            if b'"format"' in bytes(value):
                txn.put(key, raised(bytes(value)))
    env.close()
    ReadModel.open(folder / "m", "bank")


def snapshot(folder: Path) -> None:
    make(folder / "s", [], format=7)
    read_manifest(folder / "s")


def backup(folder: Path) -> None:
    BackupFolder(folder).write_manifest(
        BackupManifest(
            format=BACKUP_FORMAT,
            database="bank",
            log="l",
            shards=1,
            grouping="planner",
            partitions=1,
            id_window=10,
            digest_interval=100,
            seq=0,
            ts_ms=0,
            ends={},
            states=[],
        )
    )
    path = folder / "backup.json"
    path.write_bytes(raised(path.read_bytes()))
    BackupFolder(folder).manifest()


def backup_state(folder: Path) -> None:
    about = StateDescription(
        format=STATE_FORMAT, database="bank", log="l", partitions=1, id_window=10,
        seq=0, ts_ms=0, positions={}, keys=0, digest="0" * 32,
    )  # fmt: skip
    StateFolder(folder).write(State(about, (), DatedIds.none(), Verdicts.none()))
    path = folder / "state.json"
    path.write_bytes(raised(path.read_bytes()))
    StateFolder(folder).read()


def backup_segment(_: Path) -> None:
    import numpy as np

    one = np.zeros(1, np.int64)
    data = encode_piece(Piece(0, one, one, [None], [b"x"]), 1)
    decode_piece(data[:4] + struct.pack("<I", 7) + data[8:], "a file")


def home(folder: Path) -> None:
    place = DatabaseFolder(folder, "bank")
    place.write_record(DatabaseRecord(database="bank", shards=1, partitions=1))
    path = place.folder / "database.json"
    path.write_bytes(raised(path.read_bytes()))
    place.record()


READERS = (
    result, a_change, resolved, dead_letter, digest, control, change_into_a_read_model,
    resolved_into_a_read_model, block, output, layout, shard, single_shard, checkpoint, read_model,
    snapshot, backup, backup_state, backup_segment, home,
)  # fmt: skip


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
def test_a_later_format_is_refused(read: Callable[[Path], None], tmp_path: Path) -> None:
    with pytest.raises(StreamyError) as refused:
        read(tmp_path)
    text = str(refused.value)
    assert "7" in text, "the format that was met"
    assert any(word in text for word in ("release", "program")), "what to do"
    assert "format" in text or "layout" in text


def test_what_is_no_format_of_a_log_record_is_rejected_for_good() -> None:
    found = decode(b'{"id":"a","updates":[],"format":2}')
    assert isinstance(found, Rejection)
    assert found.code == "invalid-transaction"
    assert decode_marker(b'{"marker":1,"partitions":1,"sequencer":"s","format":2}') is None


def test_everything_that_is_kept_says_its_format(tmp_path: Path) -> None:
    recorded_config(tmp_path, SETTINGS, 1)
    assert json.loads((tmp_path / "streamydb.json").read_bytes())["format"] == FORMAT
    assert unpack(ROLE.block())[0]["format"] == FORMAT
    assert json.loads(encode_message(LeaderClaim(log="l", pipeline="p", epoch=1)))["format"] == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("shards", 2), ("grouping", "single"), ("id_window", 5), ("digest_interval", 200),
        ("partitions", 3), ("database", "other"),
    ],
)  # fmt: skip
def test_drift_is_refused_with_the_recorded_value(name: str, value: Any, tmp_path: Path) -> None:
    before = recorded_config(tmp_path, SETTINGS, 1)
    given = Settings(**{**SETTINGS.model_dump(exclude_unset=True), name: value})
    old = getattr(before, name)
    with pytest.raises(ConfigurationError, match=f"records {name}={old!r}, now {value!r}"):
        recorded_config(tmp_path, given, 3 if name == "partitions" else 1)
    assert recorded_config(tmp_path, SETTINGS, 3) == before, "the log may have grown"
