"""Backups on disk: what is damaged, missing or another's is found;
what is needed is not deleted.
"""

from __future__ import annotations

import datetime as dt
import errno
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lmdb
import msgspec
import numpy as np
import pytest

from streamydb.backup import BackupError, BackupFolder, BackupManifest, State, copy, restore
from streamydb.backup import needs as log_needs
from streamydb.backup.kafka import BackupLog, ToldState, require_same_end, told_digests
from streamydb.backup.needs import Need, checkpoint_offsets
from streamydb.backup.pieces import Piece, Positions
from streamydb.backup.resize import put_aside, standing_still
from streamydb.backup.restore import SEQUENCER, Line, append_log, lines, open_log, seq_at
from streamydb.backup.start import begin
from streamydb.backup.state import FORMAT as STATE_FORMAT
from streamydb.backup.state import StateDescription
from streamydb.backup.trim import Cut, cut, refusals, verify
from streamydb.errors import ConfigurationError
from streamydb.frames.digest import StateDigest
from streamydb.frames.shards import ShardConfig
from streamydb.frames.value_rows import Verdicts
from streamydb.kafka.reader import Span
from streamydb.key_processor.id_rows import DatedIds
from streamydb.parser.last_reads import mark_of
from streamydb.records import Marker, decode_marker, encode_marker
from streamydb.records.control import Beat, Following, LeaderClaim, Message, gear_of
from streamydb.records.rulings import NO_RULINGS
from streamydb.sorter.state import PartitionState
from tests.support.memory_kafka import CONNECTION, Died, MemoryKafka
from tests.support.seeds import seeds

CONFIG = ShardConfig("bank", "x", 2, 1, 100)
TXN = b'{"id":"a"}'


def piece(partition: int, offsets: list[int], times: list[int], *values: bytes) -> Piece:
    given = list(values) or [TXN] * len(offsets)
    ints = np.array(offsets, np.int64), np.array(times, np.int64)
    return Piece(partition, *ints, [None] * len(offsets), list(given))


def backup_of(
    folder: Path, ends: dict[int, int], states: list[int], **more: object
) -> BackupManifest:
    fields = {
        "format": 1, "database": "bank", "log": "log", "shards": 2, "grouping": "planner",
        "partitions": 1, "id_window": 100, "digest_interval": 100,
        "seq": 9, "ts_ms": 90,
    }  # fmt: skip
    facts = {**fields, **more}
    manifest = BackupManifest(ends=ends, states=states, **facts)  # type: ignore[arg-type]
    BackupFolder(folder).write_rulings(NO_RULINGS)
    BackupFolder(folder).write_manifest(manifest)
    return manifest


def state_at(seq: int, offsets: dict[int, int], **changes: object) -> State:
    about = StateDescription(
        format=STATE_FORMAT, database="bank", log="log", partitions=1, id_window=100,
        seq=seq, ts_ms=10 * seq,
        positions={n: PartitionState(10, offset) for n, offset in offsets.items()}, keys=0,
        digest="0" * 32,
    )  # fmt: skip
    about = msgspec.structs.replace(about, **changes)
    return State(about, (), DatedIds.none(), Verdicts.none())


def test_files_are_found_in_order_and_gaps_and_damage_are_named(tmp_path: Path) -> None:
    backup = BackupFolder(tmp_path)
    with pytest.raises(BackupError, match="is no backup"):
        backup.manifest()
    backup.add_segment(piece(0, [0, 1, 3], [5, 6, 7]), 0, 4)
    backup.add_segment(piece(0, [4, 5], [8, 9]), 4, 6)
    backup.add_segment(piece(0, [8], [9]), 8, 9)
    with pytest.raises(BackupError, match="the records 6 to 8 of partition 0 are missing"):
        list(backup.pieces(0, 0, 9))
    backup.add_segment(piece(0, [6, 7], [9, 9]), 6, 8)
    found = list(backup.pieces(0, 1, 7))
    assert [some.offsets.tolist() for some in found] == [[1, 3], [4, 5], [6]]
    assert found[0].values == [TXN, TXN]
    with pytest.raises(BackupError, match="the records 9 to 12 of partition 0 are not in it"):
        list(backup.pieces(0, 8, 12))
    path = next((tmp_path / "log" / "0").glob("*4-*6.seg"))
    path.write_bytes(path.read_bytes()[:-30] + b"?" + path.read_bytes()[-29:])
    with pytest.raises(BackupError, match=r"6\.seg is damaged"):
        list(backup.pieces(0, 0, 6))
    path.write_bytes(b"short")
    with pytest.raises(BackupError, match="is cut short"):
        list(backup.pieces(0, 0, 6))


def test_a_state_on_disk_is_whole_or_refused(tmp_path: Path) -> None:
    backup = BackupFolder(tmp_path)
    backup.state(7).write(state_at(7, {0: 8}))
    manifest = backup_of(tmp_path, {0: 9}, [3, 7])
    found = backup.newest_state(manifest, 8)
    assert found is not None
    assert (found.about.seq, found.about.offsets()) == (7, {0: 8})
    assert backup.newest_state(manifest, 2) is None
    with pytest.raises(BackupError, match="has no state"):
        backup.newest_state(manifest, 5)
    backup.drop_states([3])
    assert not backup.state(7).folder.exists()


def test_a_restored_log_has_its_gaps_filled_and_is_closed(tmp_path: Path) -> None:
    marker = encode_marker(Marker(40, 2, "s"))
    backup = BackupFolder(tmp_path)
    backup.add_segment(piece(0, [1, 2, 5], [10, 20, 30], TXN, TXN, marker), 0, 6)
    backup.add_segment(piece(1, [0], [15]), 0, 1)
    manifest = backup_of(tmp_path, {0: 6, 1: 1}, [])
    places = {0: PartitionState(40, 6, [(2, 40)]), 1: PartitionState(15, 1)}
    first = list(lines(backup, manifest, 0, places))
    assert [line.offset for line in first] == list(range(7))
    assert [line.append_ms for line in first] == [10, 10, 20, 20, 20, 30, 40]
    numbers = [decode_marker(line.value) for line in first]
    assert [m.marker if m else None for m in numbers] == [0, None, None, 0, 0, 40, 41]
    assert numbers[-1] == Marker(41, 2, SEQUENCER)
    second = list(lines(backup, manifest, 1, places))
    assert [decode_marker(line.value) for line in second] == [None, Marker(41, 2, SEQUENCER)]
    alone = msgspec.structs.replace(manifest, ends={0: 6})
    assert len(list(lines(backup, alone, 0, places))) == 6


def test_a_time_is_the_seq_of_all_that_was_committed_until_then(tmp_path: Path) -> None:
    marker = encode_marker(Marker(2_000, 2, "s"))
    backup = BackupFolder(tmp_path)
    backup.add_segment(piece(0, [0, 1, 2, 3], [1000, 900, 1500, 2100], TXN, TXN, TXN, marker), 0, 4)
    backup.add_segment(piece(1, [0, 1, 2], [1200, 1200, 1300], TXN, marker, TXN), 0, 3)
    manifest = backup_of(tmp_path, {0: 4, 1: 3}, [], seq=5, ts_ms=2000, partitions=2)

    def at(ms: int) -> int:
        return seq_at(backup, manifest, dt.datetime.fromtimestamp(ms / 1000, dt.UTC))

    assert [at(ms) for ms in (999, 1000, 1199, 1200, 1499, 1500, 1999, 2000)] == [
        0, 2, 2, 3, 3, 4, 4, 5
    ]  # fmt: skip
    with pytest.raises(BackupError, match="ends with seq 5, committed at 1970-01-01T00:00:02"):
        at(2001)


def test_only_what_nobody_needs_is_deleted(tmp_path: Path) -> None:
    backup = BackupFolder(tmp_path)
    backup.state(5).write(state_at(5, {0: 6, 1: 2}))
    backup.state(8).write(state_at(8, {0: 9, 1: 4}))
    manifest = backup_of(tmp_path, {0: 12, 1: 4}, [5, 8])
    spans = {0: Span(1, 12), 1: Span(3, 9), 2: Span(0, 4)}
    wanted = cut(backup, manifest, "log", spans)
    assert wanted.deletes == {0: Span(1, 6)}, "1 was trimmed farther, 2 came later"
    assert wanted.records == 5
    with pytest.raises(BackupError, match="another log"):
        cut(backup, manifest, "younger", spans)
    with pytest.raises(BackupError, match="has no state"):
        cut(backup, msgspec.structs.replace(manifest, states=[]), "log", spans)
    with pytest.raises(BackupError, match="the records 0 to 6 of partition 0 are not in it"):
        verify(backup, wanted, BackupLog(CONNECTION, "bank"), lambda *_: None)
    needs = [
        Need("the pipeline", "active", None, {0: 6}), Need("a standby", "two", 5, None),
        Need("a late one", "three", 4, None), Need("an old one", "four", None, {0: 5, 1: 9}),
        Need("a new one", "five", None, {}),
    ]  # fmt: skip
    found = refusals(wanted, needs)
    assert [line.split(" is ")[0].split(" goes ")[0] for line in found] == [
        "a late one", "an old one", "a new one"
    ]  # fmt: skip
    assert "goes on at offset 5 of partition 0, before 6" in found[1]
    assert refusals(wanted, needs, ["three", "four", "five"]) == []
    assert refusals(Cut(wanted.about, {}), needs[:2]) == []


def test_a_checkpoint_says_from_where_it_would_read(tmp_path: Path) -> None:
    assert checkpoint_offsets(tmp_path, "bank.transactions") is None
    for folder in ("offsets", "commits"):
        (tmp_path / "query" / folder).mkdir(parents=True)
    assert checkpoint_offsets(tmp_path, "bank.transactions") == {}
    for batch in (8, 9, 10, 11):
        text = f'v1\n{{"conf":{{}}}}\n{{"bank.transactions":{{"0":{batch},"1":3}}}}\n'
        text += '{"bank.feedback":{"0":7}}'
        (tmp_path / "query" / "offsets" / str(batch)).write_text(text)
        if batch < 11:
            (tmp_path / "query" / "commits" / str(batch)).write_text("v1\n{}")
            (tmp_path / "query" / "commits" / f".{batch}.crc").write_text("")
    assert checkpoint_offsets(tmp_path, "bank.transactions") == {0: 10, 1: 3}
    with pytest.raises(BackupError, match=r"names no offsets of shop\.transactions"):
        checkpoint_offsets(tmp_path, "shop.transactions")
    (tmp_path / "query" / "offsets" / "10").unlink()
    with pytest.raises(BackupError, match="cannot be read"):
        checkpoint_offsets(tmp_path, "bank.transactions")


def test_a_pipeline_begins_with_a_state_of_its_log_or_with_all_of_it(tmp_path: Path) -> None:
    folder, fresh = tmp_path / "backup", tmp_path / "checkpoint"
    fresh.mkdir()
    assert begin(fresh, None, CONFIG, "log", [0, 0]) is None
    with pytest.raises(BackupError, match=r"partition 1 begins at offset 3, .* from 0 on"):
        begin(fresh, None, CONFIG, "log", [0, 3])
    backup = BackupFolder(folder)
    backup.state(5).write(state_at(5, {0: 6, 1: 3}))
    backup_of(folder, {0: 12, 1: 4}, [5])
    began = begin(fresh, folder, CONFIG, "log", [6, 3, 0])
    assert began is not None
    assert (began.seq, began.offsets) == (5, (6, 3, -2))
    assert began.starting_offsets("t") == '{"t":{"0":6,"1":3,"2":-2}}'
    assert begin(fresh, None, CONFIG, "log", [6, 3, 0]) == began, "as it was begun"
    with pytest.raises(BackupError, match="partition 0 begins at offset 7"):
        begin(fresh, None, CONFIG, "log", [7, 3])
    with pytest.raises(BackupError, match="of another log"):
        begin(fresh, None, CONFIG, "another", [0, 0])
    for name, value in (("id_window", 5), ("partitions", 2)):
        with pytest.raises(BackupError, match=f"made with {name}="):
            begin(fresh, None, msgspec.structs.replace(CONFIG, **{name: value}), "log", [0, 0])
    with pytest.raises(BackupError, match="grouping=single begins with the log"):
        begin(fresh, None, msgspec.structs.replace(CONFIG, grouping="single"), "log", [0, 0])
    (fresh / "query").mkdir()
    assert begin(fresh, folder, CONFIG, "log", [99, 99]) is not None, "Spark says what it lacks"
    old = tmp_path / "old"
    (old / "query").mkdir(parents=True)
    with pytest.raises(BackupError, match="has begun without a state"):
        begin(old, folder, CONFIG, "log", [0, 0])
    with pytest.raises(BackupError, match="has no state"):
        begin(tmp_path / "new", tmp_path / "nothing", CONFIG, "log", [0])


def test_a_checkpoint_is_held_and_put_aside(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    with standing_still(checkpoint):
        with pytest.raises(BackupError, match="a pipeline runs on"), standing_still(checkpoint):
            pass
        assert put_aside(checkpoint) == tmp_path / "checkpoint.before-1"
    with standing_still(checkpoint):
        assert put_aside(checkpoint) == tmp_path / "checkpoint.before-2"


def test_a_folder_without_locks_is_not_taken_for_one_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", no_locks)
    for held in (standing_still(tmp_path / "checkpoint"), BackupFolder(tmp_path / "kept").alone()):
        refused = pytest.raises(ConfigurationError, match=r"locked \(No locks available\)")
        with refused, held:
            pass


@pytest.mark.parametrize("seed", range(seeds(30, 10)))
def test_pipelines_that_follow_need_the_log_and_gears_do_not(seed: int) -> None:
    """A gear that has ended never tells again; its last word would keep the log for ever."""
    dice = random.Random(seed)
    names = {"one": "", "two": "standby"}
    gears = [gear_of(pipeline, str(start)) for pipeline in names for start in range(2)]
    messages: list[Message] = []
    last: dict[str, int] = {}
    leader = ""
    for number in range(dice.randint(1, 40)):
        sender = dice.choice([*names, *gears])
        who: dict[str, Any] = {
            "log": "log",
            "pipeline": sender,
            "name": names.get(sender, "real-time"),
        }
        kind = dice.randrange(3)
        if kind == 0:
            messages.append(LeaderClaim(epoch=number + 1, **who))
            leader = sender
            continue
        fields: dict[str, Any] = {"epoch": number, "resolved": dice.randint(0, 99)}
        if kind == 1:
            messages.append(Beat(read=1, **fields, **who))
        else:
            messages.append(Following(lag_ms=0, ready=True, **fields, **who))
        last[sender] = fields["resolved"]
    found = {need.name: need.seq for need in log_needs.told_needs(messages)}
    assert found == {
        name or "active": last[pipeline]
        for pipeline, name in names.items()
        if pipeline in last and pipeline != leader
    }


def test_what_a_newer_release_needs_is_not_passed_over() -> None:
    told = msgspec.json.encode({"kind": "following", "format": 99, "log": "log", "needs": "more"})
    with pytest.raises(BackupError, match="format 99"):
        log_needs._message(told, "log")
    for value in (None, b"", b"\xff", b'{"kind":"beat"}'):
        assert log_needs._message(value, "log") is None


@pytest.mark.parametrize(
    ("others", "told"),
    [(0, "offset 0 of the backup got the broker's time"), (1, "offset 0 of the backup went to 1")],
)
def test_a_restored_record_keeps_its_place_and_time_or_it_is_told(
    others: int, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies in the log now nobody can take out, so going on is no advice."""
    kafka = MemoryKafka(random.Random(1))
    kafka.install(monkeypatch)
    kafka.create("new.transactions")
    monkeypatch.setattr(restore, "mend", lambda *_: None)
    monkeypatch.setattr(restore, "_compare", lambda *_: 0)
    for _ in range(others):
        kafka.append("new.transactions", 0, b"{}")
    contents = {0: iter([Line(0, 5, None, b"{}")])}
    with pytest.raises(BackupError, match=f"{told}.*; restore into a new database"):
        append_log(CONNECTION, "new", contents, lambda _: None)


@pytest.mark.parametrize(
    ("value", "key", "ms", "told"),
    [
        (TXN, None, 2_000, None), (b"?", None, 2_000, "at offset 2, appended at 2000 ms"),
        (TXN, b"k", 2_000, "is now another one"), (TXN, None, 2_001, "is now another one"),
        (None, None, 2_000, "has grown again"),
    ],
)  # fmt: skip
def test_a_log_that_lost_its_end_is_not_joined_with_the_backup(
    value: bytes | None,
    key: bytes | None,
    ms: int,
    told: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kafka = MemoryKafka(random.Random(1))
    kafka.install(monkeypatch)
    backup, log = BackupFolder(tmp_path), BackupLog(CONNECTION, "bank")
    kafka.create(log.topic, 2)
    backup.add_segment(piece(1, [0, 1], [1_000, 1_000]), 0, 2)
    backup.add_segment(piece(1, [2], [2_000]), 2, 3)
    with pytest.raises(BackupError, match=r"up to offset 3, and .* ends at 0: the end of the log"):
        require_same_end(backup, log, log.spans())
    for given in ((TXN, None, 1_000), (TXN, None, 1_000), (value, key, ms), (TXN, None, 9_000)):
        kafka.now_ms = given[2]
        kafka.append(log.topic, 1, given[0], given[1])
    if told is None:
        require_same_end(backup, log, log.spans())
        return
    with pytest.raises(BackupError, match=f"{told}.*in another folder"):
        require_same_end(backup, log, log.spans())
    before = log.spans()
    kafka.topics[log.topic][1].trim(3)
    require_same_end(backup, log, log.spans())
    require_same_end(backup, log, before)


def stamps(kafka: MemoryKafka) -> str | None:
    return kafka.settings.get("new.transactions", {}).get("message.timestamp.type")


def test_a_log_of_others_is_compared_before_anything_is_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A running database has that name; its clients' clocks must not decide."""
    kafka = MemoryKafka(random.Random(1))
    kafka.install(monkeypatch)
    kafka.create("new.transactions", 2)
    kafka.append("new.transactions", 1, b"{}")
    contents = {number: iter([Line(0, 5, None, TXN)]) for number in range(2)}
    with pytest.raises(BackupError, match=r"partition 1, offset 0: .* another database has this"):
        append_log(CONNECTION, "new", contents, lambda _: None)
    assert (stamps(kafka), kafka.taken) == (None, [])
    assert [part.high for part in kafka.topics["new.transactions"]] == [0, 1]


def test_a_log_that_has_all_already_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = MemoryKafka(random.Random(1))
    kafka.install(monkeypatch)
    kafka.create("new.transactions")
    kafka.append("new.transactions", 0, TXN)
    contents = {0: iter([Line(0, kafka.now_ms, None, TXN)])}
    assert append_log(CONNECTION, "new", contents, lambda _: None) == 0
    assert (stamps(kafka), kafka.taken) == (None, [])


def test_a_disk_without_room_for_the_values_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(BackupError, match=rf"^{tmp_path} cannot take .*full.*TMPDIR"),
        copy._told_of_room(tmp_path / "streamydb-scratch-1"),
    ):
        raise lmdb.DiskError("full")


def test_the_time_of_a_wild_clock_is_shown_as_it_is() -> None:
    assert restore.shown(2**53 - 1) == "9007199254740991 ms"
    assert restore.shown(1_500) == "1970-01-01T00:00:01.500+00:00"


@pytest.mark.parametrize("died", range(9))
def test_a_copy_that_died_goes_on_to_a_later_end(
    died: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fork that is repeated copies what has come to the running database since."""
    kafka = MemoryKafka(random.Random(1))
    kafka.install(monkeypatch)
    kafka.create("new.transactions", 2)

    def contents(end: int) -> dict[int, list[Line]]:
        closing = encode_marker(Marker(100 + end, 2, SEQUENCER))
        return {
            number: [
                *(Line(at, 10 + at, None, TXN) for at in range(end + number)),
                Line(end + number, 100 + end, None, closing),
            ]
            for number in range(2)
        }

    def until_it_dies() -> Iterator[int]:
        yield from range(died)
        raise Died

    life, wanted = until_it_dies(), contents(6)
    first = contents(3)
    alive = {n: (line for line in some if next(life) >= 0) for n, some in first.items()}
    with pytest.raises(Died):
        append_log(CONNECTION, "new", alive, lambda _: None)
    if any(part.records for part in kafka.topics["new.transactions"]):
        assert stamps(kafka) == "CreateTime", "no pipeline starts on a part of it"
    append_log(CONNECTION, "new", {n: iter(some) for n, some in wanted.items()}, lambda _: None)
    assert stamps(kafka) == "CreateTime", "what belongs to it is not recorded yet"
    open_log(CONNECTION, "new")
    assert stamps(kafka) == "LogAppendTime"
    for number, some in wanted.items():
        found = kafka.topics["new.transactions"][number].records
        assert [Line(each.at, each.append_ms, None, each.content) for each in found] == some


def test_a_place_in_a_piece_has_the_mark_of_the_record_before_it() -> None:
    """A pipeline that begins there compares it with the log."""
    positions = Positions({})
    positions.note(piece(0, [0, 1, 3], [5, 6, 7], b"a", b"b", b"c"))
    positions.note(piece(0, [4], [8], b"d"))
    found = [positions.at({0: offset})[0] for offset in range(6)]
    assert [(each.position, each.stamp, each.mark) for each in found] == [
        (0, -1, ""), (1, 5, mark_of(b"a")), (2, 6, mark_of(b"b")), (3, -1, ""),
        (4, 7, mark_of(b"c")), (5, 8, mark_of(b"d")),
    ]  # fmt: skip


def test_of_all_digests_that_were_told_only_the_wanted_ones_are_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kafka = MemoryKafka(random.Random(1))
    kafka.install(monkeypatch)
    kafka.create("bank.digests")
    for seq in range(0, 100, 10):
        for pipeline, interval in (("a", 10), ("b", 10), ("c", 5)):
            for shard in range(2 if pipeline != "b" else 1):
                told = StateDigest(seq, shard, interval, f"{seq:032x}", "0" * 16, 2)
                value = msgspec.json.encode(told)
                kafka.append("bank.digests", 0, value, f"{shard}/{seq}/{pipeline}".encode())
    kafka.append("bank.digests", 0, b"no digest")
    found = told_digests(CONNECTION, "bank", 10, {20, 50, 55})
    told_ms = kafka.now_ms
    assert found == {seq: {"a": ToldState(f"{2 * seq:032x}", told_ms)} for seq in (20, 50)}
