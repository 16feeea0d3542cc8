"""What earlier releases have written is read by today's code,
and gives the same (tools/golden.py).
"""

from __future__ import annotations

import base64
import json
import random
import re
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from simulator import cluster as sim
from simulator.digests import state_digest
from simulator.log import SimulatedLog
from streamydb.backup.copy import config_of
from streamydb.backup.folder import BackupFolder
from streamydb.backup.replay import LogReplay, replay
from streamydb.backup.snapshots import read_manifest, read_rows
from streamydb.columns.shards import ShardConfig, taken_over
from streamydb.key_processor.memory import MemoryBlobs
from streamydb.pipeline.record import read_record
from streamydb.pipeline.standby.agreement import Agreement
from streamydb.procedures.modules import MemoryModules
from streamydb.read_model import ReadModel
from streamydb.records import decode_change, decode_dead_letter, decode_result
from streamydb.records.control import decode_message
from streamydb.records.rulings import NO_RULINGS
from streamydb.txn_processor import outputs as o
from streamydb.verify.oracle.order import LogRecord
from streamydb.verify.oracle.replay import replay as replay_serially
from tools.golden import DATABASE, GoldenLog, make

ROOT = Path(__file__).parents[2] / "golden"
RELEASES = sorted(ROOT.iterdir())
_TOPICS = {o.RESULTS: "results", o.CHANGES: "changes", o.DEAD_LETTERS: "deadletters"}

pytestmark = pytest.mark.parametrize("golden", RELEASES, ids=lambda path: path.name)


def load(path: Path) -> Any:
    return json.loads(path.read_bytes())


def data(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def log_of(golden: Path) -> dict[int, list[LogRecord]]:
    return {
        int(q): [LogRecord(offset, append_ms, data(value)) for offset, append_ms, value in records]
        for q, records in load(golden / "log.json").items()
    }


def outputs_of(golden: Path) -> list[tuple[str, bytes | None, bytes | None]]:
    return [(t, data(k), data(v)) for t, k, v in load(golden / "outputs.json")]


def modules_of(golden: Path) -> MemoryModules:
    return MemoryModules({d: text.encode() for d, text in load(golden / "modules.json").items()})


def test_the_log_means_the_same(golden: Path) -> None:
    kept = msgspec.msgpack.decode((golden / "checkpoint-planner.bin").read_bytes())
    found = replay_serially(
        log_of(golden),
        database=DATABASE,
        initial_partitions=kept["config"]["partitions"],
        id_window=kept["config"]["id_window"],
        modules=modules_of(golden),
    )
    assert [tuple(each) for each in found.outputs] == outputs_of(golden)


@pytest.mark.parametrize("grouping", ["planner", "single"])
def test_a_checkpoint_goes_on(golden: Path, grouping: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sim, "MODULES", modules_of(golden))
    kept = msgspec.msgpack.decode(
        (golden / f"checkpoint-{grouping}.bin").read_bytes(), strict=False
    )
    config = taken_over(msgspec.convert(kept["config"], ShardConfig))
    log = SimulatedLog(random.Random(1), config.partitions, log_of(golden))
    log.partitions = log_of(golden)
    cluster = sim.Cluster(config, log, random.Random(2), crashes=0.0)
    cluster.limit_plans(kept["plan_limit"])
    for node, blobs, gathered in zip(cluster.nodes, kept["shards"], kept["gathered"], strict=True):
        node.blobs, node.gathered = MemoryBlobs(blobs), MemoryBlobs(gathered)
    cluster.feedback = kept["feedback"]
    cluster._read_feedback = kept["read_feedback"]
    cluster.read_log = kept["read_log"]
    while cluster.behind():
        cluster.batch(all_of_it=True)
    written = {
        (_TOPICS[each.topic], each.key, each.value)
        for each in cluster.written
        if each.topic in _TOPICS and not (each.value or b"").startswith(b'{"resolved"')
    }
    expected = outputs_of(golden)
    assert written <= set(expected)
    if grouping == "planner":  # the other one had written some of these already
        assert written >= set(expected[-len(expected) // 3 :])
    assert len(written) > 100
    assert cluster.resolved == sum(topic == "results" for topic, _, _ in expected)


def test_records_are_understood(golden: Path) -> None:
    readers = {
        "results": decode_result,
        "changes": decode_change,
        "deadletters": decode_dead_letter,
    }
    for topic, _, value in outputs_of(golden):
        if value is not None:
            assert readers[topic](value)
    for text in load(golden / "control.json"):
        assert decode_message(text.encode()).terms == "shards=2"
    agreement = Agreement(20, 2)
    told = load(golden / "digests.json")
    assert len(told) > 4
    for text in told:
        assert agreement.take(b"0/0/x", text.encode(), live=True) is None
    assert agreement.compared == 0


def test_what_lies_on_disk_is_understood(golden: Path, tmp_path: Path) -> None:
    shutil.copytree(golden, tmp_path / "copy")
    copy = tmp_path / "copy"
    recorded = read_record(copy)
    assert recorded is not None
    assert (recorded.shards, recorded.partitions) == (2, 2)
    state = replay_serially(
        log_of(golden),
        database=DATABASE,
        initial_partitions=2,
        id_window=config_of(BackupFolder(copy / "backup").manifest()).id_window,
        modules=modules_of(golden),
    ).state
    model = ReadModel.open(copy / "read-model", DATABASE)
    with model.snapshot() as shown:
        for key, (value, version) in state.items():
            entry = shown.get(key)
            assert entry is not None
            assert (bytes(entry.value), entry.version) == (value, version)
    model.close()
    manifest = read_manifest(copy / "snapshot")
    rows = [row for batch in read_rows(copy / "snapshot", manifest) for row in batch]
    assert {row.key.decode(): (row.value, row.version) for row in rows} == state


def test_a_backup_is_restored(golden: Path, tmp_path: Path) -> None:
    backup = BackupFolder(golden / "backup")
    manifest = backup.manifest()
    base = backup.newest_state(manifest, manifest.seq)
    assert base is not None
    log = GoldenLog(log_of(golden))
    found = replay_serially(
        log.partitions,
        database=DATABASE,
        initial_partitions=2,
        id_window=manifest.id_window,
        modules=modules_of(golden),
    )
    last = found.next_seq - 1
    assert 0 < base.about.seq < last == manifest.seq
    run = LogReplay(config_of(manifest), tmp_path, base, last, modules_of(golden), NO_RULINGS)
    replay(run, backup, manifest.ends, last)
    expected = state_digest({key.encode(): value for key, value in found.state.items()})
    assert run.state(DATABASE, "log").about.digest == expected


def test_the_files_of_this_release_can_be_made_again(golden: Path, tmp_path: Path) -> None:
    from streamydb import __version__

    if golden.name != __version__:
        pytest.skip("the files of an earlier release are kept, not made")
    make(tmp_path / "again")
    here, there = (
        {
            re.sub(r"\d+", "n", str(path.relative_to(root)))
            for path in root.rglob("*")
            if path.is_file()
        }
        for root in (golden, tmp_path / "again")
    )
    assert here == there
