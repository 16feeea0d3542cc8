"""Clients of the Python library, under `run` and straight over the log, recorded and judged."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from typing import Any

import msgspec
import pytest

from histories import (
    AppendOperation,
    History,
    ReadOperation,
    ScanOperation,
    WriteOperation,
    check_history,
    library,
)
from histories.functions import called
from histories.library import FunctionRecorder, TransactionRecorder
from histories.records import Line, Request
from histories.workload import HistoryClient, Shape
from streamydb.client import InvalidKeyError, Options, Session, attempts
from streamydb.client.transactions import prepare
from streamydb.testing.clients import Kind, MemoryHost
from streamydb.verify.oracle.expiry import OracleExpiry
from streamydb.verify.oracle.ranges import OracleRanges

SHAPE = Shape(registers=2, lists=3, impatient=0.05, give_up=0.5, prefix="here/")
CLIENTS = 6
OPERATIONS = 60


def record(host: MemoryHost, kind: Kind, shape: Shape = SHAPE, *, lost: float = 0.2) -> History:
    """Return the history of some clients; this part of the answers is ``lost``."""
    lines: list[Line] = []
    ids = itertools.count()
    chance = random.Random(kind)

    async def client(number: int) -> None:
        rng = random.Random(f"{kind} {number}")
        recorder: Any = FunctionRecorder if kind == "http" else TransactionRecorder
        session = Session(Options(timeout_s=0, page_entries=2), host.faults.clock)
        clients = [host.connect_async(kind, session=session) for _ in range(2)]
        recording = recorder(clients, rng, lines.append, shape)
        choices = HistoryClient(number, shape, rng, lambda: f"t{next(ids)}")
        for _ in range(OPERATIONS):
            host.faults.lost += chance.random() < lost
            host.faults.refused += chance.random() < lost / 2
            await recording.perform(choices, choices.next())

    async def all_of_them() -> None:
        await asyncio.gather(*map(client, range(CLIENTS)))

    host.portal.call(all_of_them())
    return History.of(lines)


@pytest.mark.randomized
@pytest.mark.parametrize("kind", ["http", "direct"])
def test_what_the_library_does_is_explained(kind: Kind) -> None:
    with MemoryHost() as host:
        host.database.tick_by_record(time.time_ns() // 1_000_000)
        history = record(host, kind, msgspec.structs.replace(SHAPE, ttl_ms=60), lost=0.5)
    report = check_history(history)
    assert report.ok, report.text()
    kinds = {(type(op.request), op.outcome) for op in history.operations}
    assert {
        (AppendOperation, "ok"),
        (WriteOperation, "ok"),
        (ReadOperation, "ok"),
        (ScanOperation, "ok"),
    } <= kinds
    assert {(WriteOperation, "unknown"), (AppendOperation, "unknown")} & kinds
    assert any(op.told and not op.told.committed for op in history.operations)
    made = [op for op in history.operations if op.told and op.told.committed]
    assert any(isinstance(op.request, AppendOperation) and op.request.ttls for op in made)


def test_functions_without_checks_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(*words: Any, **more: Any) -> Any:
        return prepare(*words, **{**more, "checks": ()})

    monkeypatch.setattr(attempts, "prepare", careless)
    with MemoryHost() as host:
        report = check_history(record(host, "http"))
    names = {one.anomaly for some in report.violations.values() for one in some}
    assert "lost-update" in names


def anomalies(kind: Kind) -> set[str]:
    """What is found in a history over one small set; a lost answer would hide some of it."""
    shape = msgspec.structs.replace(SHAPE, sets=1, room=4, ending=0)
    with MemoryHost() as host:
        report = check_history(record(host, kind, shape, lost=0))
    return {one.anomaly for some in report.violations.values() for one in some}


class Meeting:
    """Functions under `run` meet in pairs before they write, however busy the machine is."""

    _WAIT_S = 0.02

    def __init__(self) -> None:
        self._other: asyncio.Event | None = None

    async def called(self, view: Any, request: Any) -> Any:
        answer = await called(view, request)
        if self._other is not None:
            self._other.set()
            self._other = None
            return answer
        self._other = other = asyncio.Event()
        try:
            async with asyncio.timeout(self._WAIT_S):
                await other.wait()
        except TimeoutError:  # all others are done
            pass
        finally:
            self._other = None if self._other is other else self._other
        return answer


def is_noticed(kind: Kind) -> bool:
    """True if one of some histories has an anomaly of ranges: what meets in one is up to chance."""
    return any(
        anomaly == "too-many-keys" or "-predicate" in anomaly
        for _ in range(6)
        for anomaly in anomalies(kind)
    )


def test_functions_without_checks_of_ranges_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "range_checks", lambda *_: [])
    monkeypatch.setattr(library, "called", Meeting().called)
    assert is_noticed("http")


def test_a_database_without_checks_of_ranges_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OracleRanges, "failed", lambda *_: [])
    assert is_noticed("direct")


@pytest.mark.parametrize(("late_ms", "anomaly"), [(9, "there-after-its-end"),
                                                  (-9, "gone-before-its-end")])  # fmt: skip
def test_a_database_that_ends_keys_at_a_wrong_time_is_noticed(
    monkeypatch: pytest.MonkeyPatch, late_ms: int, anomaly: str
) -> None:
    over = OracleExpiry.over
    monkeypatch.setattr(OracleExpiry, "over", lambda self, ts_ms, state: over(
        self, ts_ms - late_ms, state))  # fmt: skip
    with MemoryHost() as host:
        host.database.tick_by_record(time.time_ns() // 1_000_000)
        shape = msgspec.structs.replace(SHAPE, sets=1, ending=1, ttl_ms=60)
        report = check_history(record(host, "direct", shape))
    assert anomaly in {one.anomaly for one in report.violations["ends of keys"]}


def test_what_nothing_explains_is_raised() -> None:
    async def scenario(host: MemoryHost, request: Request) -> None:
        clients = [host.connect_async("direct")]
        recorder = TransactionRecorder(clients, random.Random(1), print, Shape(impatient=0))
        await recorder.perform(HistoryClient(0, SHAPE, random.Random(1), str), request)

    with MemoryHost() as host, pytest.raises(InvalidKeyError):
        host.portal.call(scenario(host, WriteOperation("w", "", 1)))
