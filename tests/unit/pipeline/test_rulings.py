"""Faults of ours: which stop the batch, which are ruled on, by whom, and what comes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from simulator import run_seed
from streamydb import records
from streamydb.backup.folder import BackupFolder
from streamydb.errors import InvariantViolation, RecordError
from streamydb.frames import program as p
from streamydb.frames.shards import ShardConfig
from streamydb.kafka.rulings import RulingTopic
from streamydb.kafka.shared_topics import SharedTopics
from streamydb.parser.compile import compile_records
from streamydb.pipeline import restarts
from streamydb.pipeline.restarts import ExecutedBefore, FaultHandler, RestartedQuery
from streamydb.pipeline.standby import coordinator
from streamydb.pipeline.standby.coordinator import Coordinator
from streamydb.pipeline.standby.core import ElectionMember
from streamydb.pipeline.standby.position import SetRole
from streamydb.records.control import LeaderClaim
from streamydb.records.rulings import (
    Adopted,
    Book,
    Fault,
    Fence,
    ReadBefore,
    Ruling,
    Rulings,
    Suspects,
    TooLate,
    UnruledFaults,
    decode_ruling,
    encode_ruling,
    faults_in,
    require_ruled,
    require_unread,
    ruling_of,
)
from streamydb.txn_processor import interpreter

FAULTS = [Fault(q, 3 * i, "KeyError 0", named=i % 2 == 0) for q in range(2) for i in range(50)]


def test_records_of_rulings_are_read_as_they_were_written() -> None:
    for record in (Ruling(log="l", partition=1, offset=2, error="E 0", epoch=3),
                   Fence(log="l", epoch=3, pipeline="p"), Adopted(log="l")):  # fmt: skip
        assert decode_ruling(encode_ruling(record)) == record
    with pytest.raises(RecordError, match="format 2"):
        decode_ruling(b'{"kind":"adopted","log":"l","format":2}')
    with pytest.raises(RecordError, match="Not a ruling"):
        decode_ruling(None)


def test_faults_travel_in_the_message_of_the_error() -> None:
    error = UnruledFaults(FAULTS)
    trace = f"Traceback: ...\nstreamydb.txn_processor.rulings.UnruledFaults: {error}\n\tat Spark"
    assert sorted(faults_in(["outer", trace])) == sorted(FAULTS)
    assert faults_in(["no fault of ours", "KeyError: 1"]) == []
    many = UnruledFaults([Fault(0, offset, "KeyError 0") for offset in range(100_000)])
    assert len(str(many)) < 2_000


def test_a_fault_is_ruled_on_when_it_comes_again() -> None:
    suspects = Suspects()
    first, second, third = FAULTS[:3]
    assert suspects.confirm([first, second]) == []
    assert suspects.confirm([second, third]) == [second]
    assert suspects.confirm([first, third]) == [third]


def test_the_first_ruling_stands_and_none_of_one_who_leads_no_more() -> None:
    book = Book("log")
    mine, late = FAULTS[0], FAULTS[1]
    for record in (
        Adopted(log="other"),
        Fence(log="log", epoch=1, pipeline="a"),
        ruling_of(mine, "log", 1),
        ruling_of(mine._replace(error="LookupError 1"), "log", 1),
        ruling_of(FAULTS[2], "other", 1),
        Fence(log="log", epoch=2, pipeline="b"),
        ruling_of(late, "log", 1),
    ):
        book.take(encode_ruling(record))
    assert book.rulings().faults == [mine]
    assert (book.epoch, book.adopted) == (2, False)


def test_rulings_are_found_by_row() -> None:
    known = Rulings(FAULTS)
    offsets = np.array([0, 1, 3, 147, 150, 10**12])
    partitions = np.array([0, 0, 1, 1, 1, 0], np.int32)
    assert sorted(known.rows(partitions, offsets)) == [0, 2, 3]
    assert Rulings().rows(partitions, offsets) == {}


def test_nobody_rules_on_what_is_known_or_was_read() -> None:
    require_ruled([])
    with pytest.raises(UnruledFaults, match="failed on 100 transactions"):
        require_ruled(FAULTS)
    with pytest.raises(TooLate, match="run the release that executed it"):
        require_ruled(FAULTS, executed=True)
    require_unread(FAULTS[0])
    with pytest.raises(ReadBefore, match="new checkpoint folder"):
        require_unread(FAULTS[1])


def compiled(raws: list[bytes], rulings: Rulings = Rulings()) -> Any:  # noqa: B008 - immutable
    at = np.arange(len(raws))
    return compile_records(np.zeros(len(raws), np.int32), at, at, raws, rulings=rulings)


def test_a_record_that_was_ruled_unreadable_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    decode = records.decode
    raws = [json.dumps({"id": f"t{i}", "reads": ["ä"]}).encode() for i in range(3)]  # not plain

    def fails(raw: bytes | None, **how: Any) -> Any:
        if raw == raws[1]:
            raise ArithmeticError
        return decode(raw, **how)

    monkeypatch.setattr(records, "decode", fails)
    with pytest.raises(UnruledFaults) as stopped:
        compiled(raws)
    ruled = Rulings(stopped.value.faults)
    faulty = compiled(raws, ruled)
    monkeypatch.undo()
    mended = compiled(raws, ruled)
    for table in (faulty, mended):
        assert table.kind.tolist() == [p.SIMPLE, p.REJECTED, p.SIMPLE]
        assert table.home.rows.id.tolist() == [b"t0", b"", b"t2"]
    assert faulty.home.rows.raw[1] == mended.home.rows.raw[1]


@pytest.mark.parametrize("error", [MemoryError, OSError, InvariantViolation])
def test_what_the_machine_lacks_stops_the_batch(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> interpreter.Verdict:
        raise error("not a fault of the transaction")

    monkeypatch.setattr(interpreter, "execute", fails)
    if error is InvariantViolation:
        assert "InvariantViolation" in run_seed(2, 30).problems[0]
        return
    monkeypatch.setattr("simulator.cluster.Cluster.start_anew", lambda _: 1 / 0)
    assert "ZeroDivisionError" in run_seed(2, 30).problems[0]


def test_memory_that_is_short_is_no_verdict_of_a_procedure(monkeypatch: pytest.MonkeyPatch) -> None:
    from streamydb.procedures import methods
    from tests.support.procedures import evaluate

    def fails(*_: object) -> None:
        raise MemoryError

    monkeypatch.setitem(methods.METHODS[list], "extend", fails)
    with pytest.raises(MemoryError):
        evaluate("try:\n    [].extend([1])\nexcept Exception:\n    pass\nreturn 1")


class Topic:
    """A topic of rulings in memory."""

    def __init__(self) -> None:
        self.known: list[Fault] = []
        self.heard: list[Fault] = []
        self.void = False

    def refresh(self) -> int:
        self.known += self.heard
        return len(self.known)

    def rulings(self) -> Rulings:
        return Rulings(self.known)

    def rule(self, faults: list[Fault], _epoch: int) -> None:
        self.known += [] if self.void else faults


def desk(topic: Topic, monkeypatch: pytest.MonkeyPatch, resolved: int = 0) -> FaultHandler:
    told = ExecutedBefore(0, {0: resolved}, {})
    monkeypatch.setattr(restarts, "_executed_now", lambda *_: told)
    monkeypatch.setattr(FaultHandler, "_require_unwritten", lambda *_: None)
    return FaultHandler(cast("RulingTopic", topic), {}, "db", ExecutedBefore(0, {}, {}))


def said(*faults: Fault) -> list[str]:
    return [f"x.UnruledFaults: {UnruledFaults(list(faults))}"]


def test_the_one_that_leads_rules_and_a_follower_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    topic, fault = Topic(), FAULTS[4]
    leads = desk(topic, monkeypatch)
    assert not leads.may_repeat(["SomethingElse"], 1, leads=True)
    assert leads.may_repeat(said(fault), 1, leads=True)
    assert topic.known == []
    assert leads.may_repeat(said(fault), 1, leads=True)
    assert topic.known == [fault]
    topic, fault = Topic(), FAULTS[3]
    after = desk(topic, monkeypatch)
    assert all(after.may_repeat(said(fault), 1, leads=True, settled=False) for _ in range(5))
    assert topic.known == [], "the one that led before may still write its result"
    assert [after.may_repeat(said(fault), 1, leads=True) for _ in range(2)] == [True, True]
    assert topic.known == [fault]
    topic = Topic()
    follower = desk(topic, monkeypatch)
    assert all(follower.may_repeat(said(fault), 1, leads=False) for _ in range(5))
    topic.heard = [fault]
    assert follower.may_repeat(said(fault), 1, leads=False)


def test_what_was_told_is_not_ruled_on(monkeypatch: pytest.MonkeyPatch) -> None:
    fault = Fault(0, 9, "KeyError 0")
    late = desk(Topic(), monkeypatch, resolved=10)
    assert late.may_repeat(said(fault), 1, leads=True)
    with pytest.raises(TooLate):
        late.may_repeat(said(fault), 1, leads=True)
    topic = Topic()
    topic.void = True
    void = desk(topic, monkeypatch, resolved=9)
    assert void.may_repeat(said(fault), 1, leads=True)
    with pytest.raises(TooLate):
        void.may_repeat(said(fault), 1, leads=True)


def test_a_backup_keeps_them(tmp_path: Path) -> None:
    folder = BackupFolder(tmp_path)
    folder.write_rulings(Rulings(FAULTS))
    assert BackupFolder(tmp_path).rulings().faults == sorted(FAULTS)


class Query:
    """A query that has ended when it is told to."""

    def __init__(self) -> None:
        self.active, self.query, self.stopped = True, None, False

    def beats(self) -> bool:
        return self.active

    def give_up(self) -> None:
        self.stopped = True


class Part:
    """A pipeline that leads in epoch 3."""

    epoch, leads, settled, stale = 3, True, True, False


def test_a_query_is_started_again_for_its_rulings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarts, "failure_of", lambda _: said(FAULTS[0]))
    topic, part, started = Topic(), Part(), list[Query]()

    def start(number: int) -> Any:
        assert number == len(started)
        part.stale = False
        started.append(Query())
        return started[-1]

    run = RestartedQuery(start, cast("Coordinator", part), desk(topic, monkeypatch))
    run.begin()
    assert run.keep_up()
    assert len(started) == 1
    part.stale = True
    assert run.keep_up()
    assert len(started) == 2
    assert started[0].stopped
    for _ in range(2):
        started[-1].active = False
        assert run.keep_up()
    assert topic.known == [FAULTS[0]]
    started[-1].active = False
    monkeypatch.setattr(restarts, "failure_of", lambda _: ["something else"])
    assert not run.keep_up()


class Shared:
    """The shared topics of a pipeline that nobody else talks to."""

    silent = False

    def __init__(self) -> None:
        self.told: list[bytes] = []

    def poll(self, _: float) -> list[Any]:
        return []

    def tell(self, _topic: str, block: bytes) -> int:
        self.told.append(block)
        return len(self.told)


class Counted(Topic):
    """A topic of rulings that notes its fences."""

    def __init__(self) -> None:
        super().__init__()
        self.fences: list[int] = []

    def fence(self, epoch: int, _pipeline: str) -> int:
        self.fences.append(epoch)
        return self.refresh()


def test_the_shards_are_told_nothing_that_the_query_has_no_rulings_for() -> None:
    wire, topic = Shared(), Counted()
    config = ShardConfig("bank", "me", 1, 1, 10)
    member = ElectionMember("log", "me", "me", standby=True)
    found = Coordinator(
        cast("SharedTopics", wire), config, member, lambda _: None, cast("RulingTopic", topic)
    )
    found._act([SetRole(leads=False, covered=5)])
    assert len(wire.told) == 1
    assert len(found.load_rulings()) == 0
    topic.known = [FAULTS[0]]
    found._act([SetRole(leads=False, covered=9)])
    assert (found.stale, len(wire.told)) == (True, 1)
    assert len(found.load_rulings()) == 1
    assert found._shards.unsent is not None
    found._act([found._shards.unsent])
    assert (found.stale, len(wire.told)) == (False, 2)
    member.leader.epoch = 4
    found._act([SetRole(leads=True, covered=9)])
    found._act([SetRole(leads=True, covered=9)])
    assert (topic.fences, found.epoch, len(wire.told)) == ([4], 4, 4)


@pytest.mark.parametrize(("before", "waits"), [("", False), ("other", True)])
def test_a_new_leader_rules_on_nothing_while_the_last_one_may_write(
    before: str, *, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_000_000]
    monkeypatch.setattr(coordinator, "_now_ms", lambda: now[0])
    config = ShardConfig("bank", "me", 1, 1, 10)
    member = ElectionMember("log", "me", "me", standby=True)
    for epoch, pipeline in ((1, before), (2, "me")):
        member.replay(LeaderClaim(log="log", pipeline=pipeline, name=pipeline, epoch=epoch))
    found = Coordinator(
        cast("SharedTopics", Shared()), config, member, lambda _: None,
        cast("RulingTopic", Counted()),
    )  # fmt: skip
    found._act([SetRole(leads=True, covered=0)])
    assert found.settled is not waits
    now[0] += coordinator._WRITES_ON_MS - 1
    found._act([SetRole(leads=True, covered=9)])  # the same epoch
    assert found.settled is not waits
    now[0] += 1
    assert found.settled
