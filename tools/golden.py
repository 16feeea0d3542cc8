"""`python tools/golden.py`: files of this release for the tests of all later ones to read.

Made once, deliberately, for a release, into tests/golden/<version>; committed, and never made again
for that version after it is out. tests/unit/verify/test_golden.py reads every version that is there
with today's code: the log gives the same outputs, states go on, and each file is still understood.

    python tools/golden.py [--output tests/golden]
"""

from __future__ import annotations

import argparse
import base64
import random
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyarrow import parquet

from simulator.cluster import Cluster
from simulator.log import SimulatedLog
from simulator.procedures import MODULES, Calls
from simulator.workload import Workload
from streamydb import __version__
from streamydb.backup.folder import BackupFolder
from streamydb.backup.manifest import FORMAT as BACKUP_FORMAT
from streamydb.backup.manifest import BackupManifest
from streamydb.backup.pieces import Piece
from streamydb.backup.replay import LogReplay, replay
from streamydb.backup.snapshots import RowsDigest, SnapshotManifest, SnapshotTail
from streamydb.backup.snapshots.manifest import FORMAT as SNAPSHOT_FORMAT
from streamydb.backup.snapshots.manifest import MANIFEST, encode_manifest
from streamydb.backup.snapshots.rows import COLUMNS, SnapshotRow
from streamydb.frames.shards import ShardConfig
from streamydb.pipeline.record import recorded_config
from streamydb.read_model import Follower, ReadModel
from streamydb.records import Resolved, encode_resolved
from streamydb.records.control import (
    Audited,
    Beat,
    Following,
    Handover,
    LeaderClaim,
    encode_message,
)
from streamydb.records.rulings import NO_RULINGS, Rulings
from streamydb.settings import Settings
from streamydb.txn_processor import outputs as o
from streamydb.verify.oracle.core import replay as replay_serially
from streamydb.verify.oracle.order import LogRecord
from streamydb.verify.oracle.outputs import OutputRecord
from tests.support.memory_topic import MemorySource, MemoryTopic

__all__ = ["make"]

DATABASE = "golden"
ROOT = Path(__file__).resolve().parent.parent
_WINDOW = 60
_INTERVAL = 20
_MIDDLE = 110


class GoldenLog:
    """A log as a source."""

    def __init__(self, partitions: dict[int, list[LogRecord]]) -> None:
        """Take over its records."""
        self.partitions = partitions

    def pieces(self, partition: int, start: int, end: int) -> Iterator[Piece]:
        """The records of a partition, in one piece."""
        some = [r for r in self.partitions[partition] if start <= r.offset < end]
        if some:
            offsets, times = (np.array([r[i] for r in some], np.int64) for i in (0, 1))
            yield Piece(partition, offsets, times, [None] * len(some), [r.value for r in some])

    def rulings(self) -> Rulings:
        """None of its records met a fault of ours."""
        return NO_RULINGS

    def ends(self) -> dict[int, int]:
        """One past the last offset of each partition."""
        return {q: rs[-1].offset + 1 if rs else 0 for q, rs in self.partitions.items()}


def make(folder: Path) -> None:
    """Write all files into a folder, which is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    log, configs = _log(), _configs()
    outputs = replay_serially(
        log.partitions, database=DATABASE, initial_partitions=2, id_window=_WINDOW, modules=MODULES
    )
    source = GoldenLog(log.partitions)
    _write(folder / "log.json", {
        str(q): [[r.offset, r.append_ms, _text(r.value)] for r in records]
        for q, records in log.partitions.items()
    })  # fmt: skip
    _write(folder / "outputs.json", [[t, _text(k), _text(v)] for t, k, v in outputs.outputs])
    _write(folder / "modules.json", {d: text.decode() for d, text in MODULES.texts.items()})
    digests: list[bytes] = []
    for config in configs:
        digests += _checkpoint(folder / f"checkpoint-{config.grouping}.bin", config, log)
    _write(folder / "digests.json", sorted({each.decode() for each in digests}))
    settings = Settings(database=DATABASE, bootstrap="127.0.0.1:1", shards=2)
    recorded_config(folder, settings, 2)
    _write(folder / "control.json", [encode_message(each).decode() for each in _messages()])
    _read_model(folder / "read-model", outputs.outputs, outputs.next_seq - 1)
    _snapshot(folder / "snapshot", outputs.state, outputs.next_seq - 1)
    _backup(folder / "backup", source, configs[0], outputs.next_seq - 1)


def _configs() -> list[ShardConfig]:
    return [
        ShardConfig(DATABASE, "golden", 2, 2, _WINDOW, grouping, digest_interval=_INTERVAL)
        for grouping in ("planner", "single")
    ]


def _log() -> SimulatedLog:
    """Transactions of all kinds, hostile records, repeated ids, procedures; it grows once."""
    rng = random.Random("golden")  # noqa: S311 - the same files again
    keys = [f"k{i}" for i in range(12)] + ["é/\n"]
    workload = Workload(rng, keys, 0.2, 0.08, 0.5)
    workload.calls = Calls(rng, keys, 0.3)
    log = SimulatedLog(rng, 2)
    for part in range(12):
        for _ in range(20):
            log.append(workload.record())
        if part == 6:
            log.grow()
        log.round()
    log.round()
    return log


def _checkpoint(path: Path, config: ShardConfig, log: SimulatedLog) -> list[bytes]:
    """The state of a pipeline in the middle of the log, with a plan open; the digests it told."""
    rng = random.Random("checkpoint")  # noqa: S311 - as above
    cluster = Cluster(config, log, rng, crashes=0.0)
    cluster.limit_plans(25)
    while cluster.resolved < _MIDDLE:
        cluster.batch()
    found = {
        "config": config, "plan_limit": cluster.plan_limit, "read_log": cluster.read_log,
        "shards": [node.blobs.blobs for node in cluster.nodes],
        "gathered": [node.gathered.blobs for node in cluster.nodes],
        "feedback": cluster.feedback, "read_feedback": cluster._read_feedback,  # noqa: SLF001
    }  # fmt: skip
    path.write_bytes(msgspec.msgpack.encode(found))
    return [each.value or b"" for each in cluster.written if each.topic == o.DIGESTS]


def _messages() -> list[LeaderClaim | Beat | Following | Handover | Audited]:
    who: dict[str, Any] = {"log": "log", "pipeline": "p", "name": "two", "terms": "shards=2"}
    return [
        LeaderClaim(**who, epoch=3), Beat(**who, epoch=3, resolved=5, read=9),
        Handover(**who, to="two"),
        Following(**who, epoch=3, resolved=4, lag_ms=7, ready=True), Audited(**who),
    ]  # fmt: skip


def _read_model(folder: Path, outputs: Iterable[OutputRecord], last: int) -> None:
    topic = MemoryTopic(2)
    for name, key, value in outputs:
        if name == "changes" and key is not None:
            topic.append(len(key) % 2, key, value)
    for partition in range(2):
        topic.append(partition, None, encode_resolved(Resolved(last, 1, {"0": 1})))
    model = ReadModel.open(folder, DATABASE, write=True, map_bytes=1 << 20)
    follower = Follower(
        model, Settings(database=DATABASE, bootstrap="127.0.0.1:1"), source=MemorySource(topic)
    )
    while follower.step(0):
        pass
    follower.close()
    model.close()
    for lock in ("lock.mdb", "writer.lock"):
        (folder / lock).unlink(missing_ok=True)


def _snapshot(folder: Path, state: dict[str, tuple[bytes, int]], last: int) -> None:
    rows = [
        SnapshotRow(k.encode(), value, version, 1, b"t") for k, (value, version) in state.items()
    ]
    rows.sort()
    digest = RowsDigest()
    for row in rows:
        digest.add(row.key, row.value, row.version, row.ts_ms)
    (folder / "data").mkdir(parents=True)
    columns = zip(*rows, strict=True)
    kinds = [pa.string(), pa.string(), pa.int64(), pa.int64(), pa.string(), pa.int64()]
    arrays = [
        pa.array([cell.decode() if isinstance(cell, bytes) else cell for cell in column], kind)
        for column, kind in zip(columns, kinds, strict=True)
    ]
    parquet.write_table(pa.table(arrays, names=COLUMNS), folder / "data/part-00000.parquet")
    manifest = SnapshotManifest(
        format=SNAPSHOT_FORMAT, database=DATABASE, cluster=None, topic="memory", seq=last, ts_ms=1,
        rows=digest.rows, digest=digest.hex(), changes={0: SnapshotTail(1, last, {0: 1})},
        files=["data/part-00000.parquet"],
    )  # fmt: skip
    (folder / MANIFEST).write_bytes(encode_manifest(manifest))


def _backup(folder: Path, source: GoldenLog, config: ShardConfig, last: int) -> None:
    backup, ends, work = BackupFolder(folder), source.ends(), folder / "work"
    work.mkdir(parents=True)
    run = LogReplay(config, work, None, last // 2, MODULES)
    replay(run, source, ends, last // 2)
    state = run.state(DATABASE, "log")
    backup.state(last // 2).write(state)
    shutil.rmtree(work)
    for number, end in ends.items():
        for piece in source.pieces(number, 0, end):
            backup.add_segment(piece, 0, end)
    backup.write_rulings(NO_RULINGS)
    backup.write_manifest(
        BackupManifest(
            format=BACKUP_FORMAT,
            database=DATABASE,
            log="log",
            shards=2,
            grouping="planner",
            partitions=2,
            id_window=_WINDOW,
            digest_interval=_INTERVAL,
            seq=last,
            ts_ms=1,
            ends=ends,
            states=[last // 2],
        )
    )


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _write(path: Path, value: Any) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")


def main(arguments: list[str] | None = None) -> int:
    """Make the files of this release."""
    parser = argparse.ArgumentParser(description="Make the golden files of this release.")
    parser.add_argument("--output", type=Path, default=ROOT / "tests" / "golden")
    target = parser.parse_args(arguments).output / __version__
    make(target)
    sys.stdout.write(f"{target}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
