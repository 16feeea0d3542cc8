"""A random log that is copied, trimmed, divided and restored, with deaths between all steps.

The log grows; it is copied piece by piece, trimmed, executed by pipelines that are somewhere. Every
step is production's, over Kafka in memory; a process dies at any request and within any file, and
the step is done again. What comes of it must be what the oracle says of the whole log.
"""

from __future__ import annotations

import datetime as dt
import os
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from stat import S_ISDIR
from typing import Any, TypeVar

import msgspec
import pytest

from simulator.procedures import MODULES
from streamydb.backup import copy, folder
from streamydb.backup import fork as forking
from streamydb.backup import resize as resizing
from streamydb.backup import restore as restoring
from streamydb.backup import trim as trimming
from streamydb.backup.folder import BackupFolder, StateFolder
from streamydb.backup.kafka import BackupLog
from streamydb.backup.manifest import BackupError, BackupManifest
from streamydb.backup.needs import Need, needs
from streamydb.backup.pieces import LogSource
from streamydb.backup.start import START, Beginning, begin
from streamydb.backup.state import StateDescription
from streamydb.frames.digest import StateDigest
from streamydb.kafka.foundation import FoundingFacts
from streamydb.kafka.names import TopicNames
from streamydb.kafka.rulings import RulingTopic
from streamydb.local.file_lock import write_whole
from streamydb.local.folder import DatabaseFolder
from streamydb.local.module_folder import file_name
from streamydb.records import Marker, Result, decode_result, encode_marker
from streamydb.records.begins import EVERYWHERE
from streamydb.records.control import Following, encode_message
from streamydb.records.rulings import Fault, Rulings, encode_ruling, ruling_of
from streamydb.sorter.state import PartitionState
from streamydb.verify.oracle.order import LogRecord, Ordered, released
from tests.support.lost_tails import another_end
from tests.support.memory_kafka import CONNECTION, Died, MemoryKafka, Record
from tests.support.states import truth, written

__all__ = ["NAMES", "Kept", "quiet"]

NAMES, NEW, FORK = TopicNames("sim"), TopicNames("new"), TopicNames("fork")
Answer = TypeVar("Answer")


class Kept:
    """A database whose log is kept, and what is true of it."""

    def __init__(self, seed: int, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made = written(seed)
        self.dice = random.Random(f"backups {seed}")
        self.kafka = MemoryKafka(self.dice)
        self.kafka.install(monkeypatch)
        self._break_files(monkeypatch)
        self.place = DatabaseFolder(home, "sim")
        self.folder = BackupFolder(home / "backup")
        self.rulings = Rulings(self._faults())
        self.outputs, self.digests = truth(self.made.log, self.made.config, self.rulings)
        self.order = released(self.made.log.partitions, self.made.config.partitions)
        self.stage, self.resolved, self.taken, self.died = 0, 0, 0, 0
        self.pipelines: dict[str, int] = {}
        self.alive = self.dice.sample(["two", "three", "active"], self.dice.randint(0, 3))
        self.gone: set[str] = set()
        self.floor = 0
        self._set_up(home)

    def _faults(self) -> list[Fault]:
        """Some transactions with ids of their own that a fault of ours has aborted."""
        count = self.dice.choice([0, 1, 4])
        outputs, _ = truth(self.made.log, self.made.config) if count else ([], [])
        results = [
            decode_result(each.value or b"")
            for some in outputs
            for each in some[:1]
            if each.topic == "results"
        ]
        times = Counter(result.id for result in results)
        executed = [
            Fault(each.source.partition, each.source.offset, "KeyError")
            for each in results
            if isinstance(each, Result) and times[each.id] == 1 and each.status == "committed"
        ]
        return self.dice.sample(executed, min(len(executed), count))

    def _set_up(self, home: Path) -> None:
        """Topics, and the modules in their folder."""
        for topic in (
            NAMES.control,
            NAMES.digests,
            NAMES.rulings,
            NAMES.deadletters,
            NAMES.founding,
        ):
            self.kafka.create(topic)
        facts = FoundingFacts(log="log", begins=EVERYWHERE)
        self.kafka.append(NAMES.founding, 0, msgspec.json.encode(facts), b"founding")
        self.kafka.create(NAMES.transactions, self.made.config.partitions)
        self.kafka.ids |= {
            NAMES.transactions: "log",
            NEW.transactions: "new log",
            FORK.transactions: "fork log",
        }
        for fault in self.rulings.faults:
            self.kafka.append(NAMES.rulings, 0, encode_ruling(ruling_of(fault, "log")))
        interval = self.made.config.digest_interval
        for seq in range(0, len(self.digests), interval):
            told = StateDigest(seq, 0, interval, self.digests[seq], "0" * 16, 1)
            self.kafka.append(NAMES.digests, 0, msgspec.json.encode(told), b"0/x")
        (home / "procedures").mkdir()
        for digest, text in MODULES.texts.items():
            for name in ("sim", "other"):
                (home / "procedures" / file_name(name, digest)).write_bytes(text)
        self.subject = copy.Subject(
            connection=CONNECTION,
            database="sim",
            log="log",
            shards=1,
            grouping="planner",
            partitions=self.made.config.partitions,
            id_window=self.made.config.id_window,
            digest_interval=self.made.config.digest_interval,
            procedures=home / "procedures",
        )

    def _break_files(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A process dies while it writes a file, of which some is there, or right after it."""
        write = write_whole

        def torn(file: int) -> None:
            if S_ISDIR(os.fstat(file).st_mode):  # names are there at once
                return
            if self.dice.random() < self.kafka.failing:
                os.ftruncate(file, self.dice.randint(0, os.fstat(file).st_size))
                raise Died

        def written_last(path: Path, data: bytes, *, synced: bool = True) -> None:
            write(path, data, synced=synced)
            self.kafka.may_die()

        monkeypatch.setattr("os.fsync", torn)
        monkeypatch.setattr(folder, "write_whole", written_last)
        monkeypatch.setattr(copy, "write_whole", written_last)

    def again(self, step: Callable[[], Answer]) -> Answer:
        """Do something until nobody dies over it; what is kept is sound all the time."""
        chance = self.dice.choice([0.0, 0.03, 0.15, 0.4])
        while True:
            self.kafka.failing = chance
            try:
                return step()
            except Died:
                self.died += 1
                chance *= 0.7
            finally:
                self.kafka.failing = 0.0
                self.sound()

    def grow(self) -> None:
        """The log grows, and the pipeline resolves some of it."""
        self.stage = min(self.stage + self.dice.randint(1, 6), len(self.made.ends) - 1)
        ends = self.made.ends[self.stage]
        parts = self.kafka.create(NAMES.transactions, len(ends))
        for number, part in enumerate(parts):
            part.high = max(part.high, ends[number])
            part.records = [
                Record(number, each.offset, each.append_ms, None, each.value)
                for each in self.made.log.partitions[number]
                if part.low <= each.offset < part.high
            ]
        last = len(self.here())
        assert self.order[:last] == self.here()
        self.resolved = self.dice.choice([last, last, self.dice.randint(self.resolved, last)])

    def here(self) -> list[Ordered]:
        """What a pipeline executes of the log as it is now, were it not trimmed."""
        ends = self.made.ends[self.stage]
        log = {q: [r for r in rs if r.offset < ends.get(q, 0)]
               for q, rs in self.made.log.partitions.items() if q in ends}  # fmt: skip
        return released(log, self.made.config.partitions)

    def lows(self) -> list[int]:
        """The first offset of each partition."""
        return [part.low for part in self.kafka.topics[NAMES.transactions]]

    def sound(self) -> None:
        """What the backup says that it has, it has."""
        if not self.folder.exists():
            assert self.taken == 0
            return
        manifest = self.folder.manifest()
        assert manifest.seq >= self.taken
        for partition, end in manifest.ends.items():
            found = [row for piece in self.folder.pieces(partition, 0, end) for row in piece.rows()]
            known = self.made.log.partitions[partition]
            assert [(row[0], row[1], row[3]) for row in found] == [
                tuple(each) for each in known if each.offset < end
            ]
        for seq in manifest.states:
            assert self.folder.state(seq).read().about.digest == self.digests[seq]

    def back_up(self) -> None:
        """Take a backup, or go on with one."""
        keep = self.dice.randint(1, 3)
        done = self.again(lambda: copy.take(self.folder, self.subject, self.resolved, keep, quiet))
        last = len(self.here())
        assert (done.seq, done.digest, done.state) == (last, self.digests[last], self.resolved)
        self.taken = last
        manifest = self.folder.manifest()
        assert len(manifest.states) <= keep
        assert max(manifest.states) == self.resolved
        assert self.folder.rulings().faults == self.rulings.faults
        self.sound()

    def move(self) -> None:
        """Pipelines come and go on: one in this home, some that have told where they are."""
        for name in self.alive:
            if self.dice.random() < 0.5:
                continue
            seq = self.pipelines[name] = max(
                self.pipelines.get(name, self.floor), self.dice.randint(0, self.resolved),
                self.dice.choice([0, self.resolved]),
            )  # fmt: skip
            self.gone.discard(name)
            if name == "active":
                self._write_checkpoint(self.needed(seq))
                continue
            told = Following(
                log="log", pipeline=f"of {name}", name=name, epoch=1, resolved=seq, lag_ms=0,
                ready=True,
            )  # fmt: skip
            self.kafka.append(NAMES.control, 0, encode_message(told))

    def needed(self, seq: int) -> dict[int, int]:
        """Per partition, the first record that comes after a seq."""
        before: dict[int, int] = {}
        for each in self.order[seq:]:
            before.setdefault(each.partition, each.offset)
        ends = self.made.ends[-1]
        return {q: before.get(q, ends[q]) for q in self.made.ends[self.stage]}

    def _write_checkpoint(self, offsets: dict[int, int]) -> None:
        """Batch 3 of the pipeline in this home is done; another one has begun, perhaps."""
        query = self.place.checkpoint / "query"
        named = {NAMES.transactions: {str(q): at for q, at in offsets.items()}}
        for batch, folders in ((3, ("offsets", "commits")), (4, ("offsets",))):
            for name in folders:
                (query / name).mkdir(parents=True, exist_ok=True)
                text = f"v1\n{{}}\n{msgspec.json.encode(named).decode()}"
                (query / name / str(batch)).write_text(text if name == "offsets" else "v1\n{}")
            named = {
                topic: {q: at + 1000 for q, at in read.items()} for topic, read in named.items()
            }

    def trim(self) -> None:
        """Delete what nobody needs any more, where the backup has it."""
        if not self.folder.exists() or not self.folder.manifest().states:
            return
        self.gone |= {name for name in self.pipelines if self.dice.random() < 0.1}
        manifest = self.folder.manifest()
        against = self.again(self._trimmed)
        oldest = min(manifest.states)
        self.pipelines = {n: seq for n, seq in self.pipelines.items() if n not in self.gone}
        behind = [seq for seq in self.pipelines.values() if seq < oldest]
        assert bool(behind) == bool(against), "refused if somebody is behind the oldest state"
        self.floor = self.floor if against else max(self.floor, oldest)
        for name, seq in self.pipelines.items():
            for partition, needed in self.needed(seq).items():
                assert self.lows()[partition] <= needed, f"{name} lost what it needs"

    def _trimmed(self) -> list[str]:
        """As `streamydb trim --yes` does: why it was refused."""
        log = BackupLog(CONNECTION, "sim")
        cut = trimming.cut(self.folder, self.folder.manifest(), "log", log.spans())
        known = list(needs(CONNECTION, "sim", "log", self.place))
        known.append(Need("what is resolved", "resolved", self.resolved, None))
        against = trimming.refusals(cut, known, self.gone)
        trimming.verify(self.folder, cut, log, quiet)
        if not against:
            lows = trimming.trim(CONNECTION, "sim", cut)
            assert lows == {number: span.high for number, span in cut.deletes.items()}
        return against

    def lose_tail(self) -> None:
        """The log loses its end for a while: then the backup is not joined with what it has."""
        copied = {q: self.folder.segments(q) for q, low in enumerate(self.lows())}
        lost = [q for q, low in enumerate(self.lows()) if copied[q] and low < copied[q][-1].end]
        if not lost or not self.folder.manifest().states:
            return
        number, beside = self.dice.choice(lost), StateFolder(self.folder.folder.parent / "none")
        steps: list[Callable[[], object]] = [
            lambda: copy.take(self.folder, self.subject, self.resolved, 1, quiet),
            self._trimmed,
            lambda: forking.live(self.subject, self.folder),
            lambda: resizing.divide(
                self.subject, self.place.checkpoint, self.folder, self.resolved, beside, quiet
            ),
        ]  # fmt: skip
        last = copied[number][-1].end - 1
        with another_end(self.kafka, NAMES.transactions, number, last, self.dice):
            for step in steps:
                with pytest.raises(BackupError, match="the end of the log was lost"):
                    self.again(step)
        assert {q: self.folder.segments(q) for q in copied} == copied, "nothing was added"

    def resize(self) -> Beginning | None:
        """Divide the state anew; the checkpoint begins with it. None: its beginning is gone."""
        given = self.folder if self.folder.exists() and self.dice.random() < 0.7 else None
        checkpoint = self.place.checkpoint
        seq = self.dice.choice([self.resolved, self.dice.randint(0, self.resolved)])
        draft = checkpoint.with_name("checkpoint.draft")
        target = StateFolder(draft / START)
        try:
            about = self.again(
                lambda: resizing.divide(self.subject, checkpoint, given, seq, target, quiet)
            )
        except BackupError:
            assert any(self.lows()), "the whole log is there"
            assert not self._has_base(given, seq)
            return None
        assert (about.seq, about.digest) == (seq, self.digests[seq])
        self.again(lambda: self._put(draft, about))
        config = msgspec.structs.replace(self.made.config, incarnation="new")
        return begin(checkpoint, None, config, "log", self.lows())

    def _put(self, draft: Path, about: StateDescription) -> None:
        """As `streamydb resize` does."""
        checkpoint = self.place.checkpoint
        with resizing.standing_still(checkpoint):
            resizing.put_aside(checkpoint)
            self.kafka.may_die()
            draft.rename(checkpoint)
        self.pipelines["active"] = about.seq
        self.gone.discard("active")

    def _has_base(self, given: BackupFolder | None, seq: int) -> bool:
        """Whether there is a state before a seq from which on the log is whole."""
        states = [] if given is None else [given.state(n) for n in given.manifest().states]
        if (self.place.checkpoint / START).exists():
            states.append(StateFolder(self.place.checkpoint / START))
        found = [each.about() for each in states]
        return any(about.seq <= seq and self.has_rest(about.offsets()) for about in found)

    def has_rest(self, offsets: Mapping[int, int]) -> bool:
        """Whether the log still has what comes after a state."""
        return all(offsets.get(q, 0) >= low for q, low in enumerate(self.lows()))

    def rebuild(self, home: Path) -> Beginning | None:
        """A new checkpoint begins with the newest state of the backup, after a wrong one."""
        config = msgspec.structs.replace(self.made.config, incarnation="anew")
        newest = self.folder.state(max(self.folder.manifest().states)).read()
        older = {q: PartitionState() for q in newest.about.positions}
        wrong: list[dict[str, Any]] = [{"log": "another"}, {"positions": older}]
        for changes in wrong[: 2 if any(self.lows()) else 1]:
            about = msgspec.structs.replace(newest.about, **changes)
            StateFolder(home / "other").write(replace(newest, about=about))
            with pytest.raises(BackupError, match=r"of another log|was trimmed"):
                begin(home / "anew", home / "other", config, "log", self.lows())
        return begin(home / "anew", self.folder.folder, config, "log", self.lows())

    def restore(self) -> None:
        """Make a new database that is right after some seq or time."""
        manifest = self.folder.manifest()
        seq = self.dice.randint(0, manifest.seq)
        if seq and self.dice.random() < 0.5:
            seq = self._at_time(self.order[seq - 1].ts_ms + self.dice.choice([-1, 0, 0, 1]))
        self._begins(
            NEW, self.folder, manifest, seq,
            lambda: restoring.prefix(self.folder, manifest, seq, quiet),
        )  # fmt: skip

    def fork(self) -> None:
        """Make a new database of the running one, right after some seq, some time, or now."""
        trimmed = any(self.lows())
        if trimmed:
            with pytest.raises(BackupError, match="was trimmed: name the backup"):
                forking.live(self.subject, None)
        given = self.folder if trimmed or self.folder.exists() else None
        log, here = self.again(lambda: forking.live(self.subject, given)), self.here()
        manifest, last = log.manifest, len(here)
        seq = self.dice.choice([None, self.dice.randint(0, last), last])
        if seq and self.dice.random() < 0.5:
            seq = self._at_live_time(log, here[seq - 1].ts_ms + self.dice.choice([-1, 0, 0, 1]))
        with pytest.raises(BackupError, match=r"there is no seq|the log ends at seq"):
            self.again(lambda: forking.moment_at(log, last + self.dice.choice([1, 999]), quiet))
        was = {
            number: list(part.records)
            for number, part in enumerate(self.kafka.topics[NAMES.transactions])
        }
        wanted = last if seq is None else seq
        self._begins(FORK, log, manifest, wanted, lambda: forking.moment_at(log, seq, quiet))
        for number, part in enumerate(self.kafka.topics[NAMES.transactions]):
            assert part.records == was[number], "the database itself is as it was"

    def _at_live_time(self, log: forking.LiveLog, ts_ms: int) -> int:
        """The last seq of the running log until a time; its newest if more may yet come."""
        at = dt.datetime.fromtimestamp(ts_ms / 1000, dt.UTC)
        here = self.here()
        found: int | str
        try:
            found = self.again(lambda: forking.seq_until(log, log.manifest, at))
        except BackupError as fault:
            found = str(fault)
        if isinstance(found, str):
            assert "more may be committed" in found
            assert ts_ms > here[-1].ts_ms
            return len(here)
        assert found == sum(each.ts_ms <= ts_ms for each in here)
        return found

    def _begins(
        self,
        new: TopicNames,
        source: LogSource,
        manifest: BackupManifest,
        seq: int,
        place: Callable[[], StateDescription],
    ) -> None:
        """A new database gets the beginning of a log; another history goes on from there."""
        self.kafka.create(new.transactions, len(manifest.ends))
        self.kafka.create(new.rulings)
        name = new.transactions.partition(".")[0]

        def begun() -> StateDescription:
            about = place()
            places = about.positions
            contents = {
                number: restoring.lines(source, manifest, number, places)
                for number in sorted(manifest.ends)
            }
            restoring.append_log(CONNECTION, name, contents, lambda _: None)
            restoring.keep_rulings(CONNECTION, name, source.rulings(), places)
            return about

        about = self.again(begun)
        assert (about.seq, about.digest) == (seq, self.digests[seq])
        assert self._order_of(new) == self.order[:seq]
        kept = RulingTopic(CONNECTION, name, f"{name} log", EVERYWHERE)
        kept.refresh()
        before = {(each.partition, each.offset) for each in self.order[:seq]}
        wanted = [f for f in self.rulings.faults if (f.partition, f.offset) in before]
        assert [f for f in kept.rulings().faults if (f.partition, f.offset) in before] == wanted
        self._append_to(new, len(manifest.ends))
        assert self._order_of(new)[:seq] == self.order[:seq]

    def _at_time(self, ts_ms: int) -> int:
        """The last seq that was committed until a time, or of all if the backup ends before."""
        manifest = self.folder.manifest()
        at = dt.datetime.fromtimestamp(ts_ms / 1000, dt.UTC)
        if ts_ms > manifest.ts_ms:
            with pytest.raises(BackupError, match="committed at"):
                restoring.seq_at(self.folder, manifest, at)
            return manifest.seq
        seq = restoring.seq_at(self.folder, manifest, at)
        assert seq == sum(each.ts_ms <= ts_ms for each in self.order[: manifest.seq])
        return seq

    def _append_to(self, new: TopicNames, partitions: int) -> None:
        """The new database lives: brokers whose clocks are anywhere, clients and a sequencer."""
        self.kafka.now_ms = self.dice.choice([1, 2_000_000_000])
        marker = encode_marker(Marker(3_000_000_000, partitions, "later"))
        for value in (b'{"id":"later"}', marker, marker):
            for number in range(partitions):
                self.kafka.append(new.transactions, number, value)

    def _order_of(self, new: TopicNames) -> list[Ordered]:
        log = {
            number: [LogRecord(each.at, each.append_ms, each.content) for each in part.records]
            for number, part in enumerate(self.kafka.topics[new.transactions])
        }
        return released(log, self.made.config.partitions)


def quiet(*_: Any) -> None:
    """Tell nobody of the progress."""
