"""Internal faults in the simulator: of one release, of one attempt, of the machine.

A *release* fails on some transactions for good, another one does not. Beside that, execution fails
now and then once, or memory is short: what comes again does not fail. Records are drawn by a hash,
so that every attempt of a release fails on the same.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import FunctionType
from typing import Any, TypeVar, cast
from unittest import mock

from streamydb import records
from streamydb.frames.record_rows import TimedRecords
from streamydb.planner.conflicts import Ints, plan_transactions
from streamydb.planner.plan import Plan
from streamydb.records.rulings import (
    Book,
    Fault,
    Fence,
    RulingRecord,
    Rulings,
    encode_ruling,
    ruling_of,
)
from streamydb.txn_processor import interpreter
from streamydb.txn_processor.plain_calls import PlainCalls

__all__ = ["LOG", "Release", "SimulatedRulings", "failing", "packed_otherwise", "running"]

_F = TypeVar("_F", bound=Callable[..., Any])

LOG = "sim"
"""The id of the simulated log."""


def _of_ours(function: _F) -> _F:
    """Return a function that raises as our own code does: the module of its frame is of ours.

    By that, `procedures.meter.is_of_language` tells faults of ours from those of a procedure.
    """
    plain = cast("FunctionType", function)
    place = {**plain.__globals__, "__name__": "streamydb.simulated"}
    return cast("_F", FunctionType(plain.__code__, place, plain.__name__))


class SimulatedRulings:
    """`<db>.rulings`, shared by all clusters over a log."""

    def __init__(self) -> None:
        """Nothing was ruled."""
        self.values: list[bytes] = []

    def append(self, record: RulingRecord) -> None:
        """One more record."""
        self.values.append(encode_ruling(record))

    def rule(self, faults: Sequence[Fault], epoch: int) -> None:
        """Rule on faults."""
        for fault in faults:
            self.append(ruling_of(fault, LOG, epoch))

    def fence(self, epoch: int) -> None:
        """Somebody leads from here on."""
        self.append(Fence(log=LOG, epoch=epoch, pipeline="sim"))

    def rulings(self) -> Rulings:
        """Return the rulings so far."""
        book = Book(LOG)
        for value in self.values:
            book.take(value)
        return book.rulings()


class Release:
    """One release of the code.

    Args:
        seed: draws what it fails on.
        rate: of the records that it fails on for good, while executing; half as many while reading.
        once: how often an execution fails that does not when it is repeated.

    """

    def __init__(self, seed: int, rate: float, once: float) -> None:
        """Nothing has failed yet."""
        self._seed = seed
        self._rate = rate
        self._once = once
        self._random = random.Random(f"faults {seed} {rate}")  # noqa: S311 - repeatable
        self._failed: set[bytes] = set()

    def mended(self) -> Release:
        """One that fails on nothing for good."""
        other = Release(self._seed, 0.0, self._once)
        other._failed = self._failed
        return other

    @_of_ours
    def read(self, raw: bytes) -> None:
        """Fail while a record is read, or do not."""
        if self._drawn(b"read" + raw, self._rate / 2):
            raise RuntimeError("a fault of the reader")

    @_of_ours
    def execute(self, name: bytes) -> None:
        """Fail while a transaction is executed, or do not."""
        if self._drawn(b"execute" + name, self._rate):
            raise KeyError(name)
        if name not in self._failed and self._random.random() < self._once:
            self._failed.add(name)
            raise self._random.choice([MemoryError, OSError, LookupError])

    def _drawn(self, what: bytes, rate: float) -> bool:
        return zlib.crc32(b"%d" % self._seed + what) % 10_000 < 10_000 * rate


_running: list[Release] = []


@contextmanager
def running(release: Release | None) -> Iterator[None]:
    """Within it the code is that of ``release``."""
    before, _running[:] = list(_running), [] if release is None else [release]
    try:
        yield
    finally:
        _running[:] = before


@contextmanager
def failing() -> Iterator[None]:
    """Within it the code fails as the release that is `running` has it."""
    decode, execute, alone = records.decode, interpreter.execute, PlainCalls.alone

    def faulty_decode(raw: bytes | None, **how: Any) -> Any:
        for release in _running if raw is not None and b'"marker"' not in raw else ():
            release.read(raw or b"")
        return decode(raw, **how)

    def faulty_execute(txn: Any, *rest: Any) -> interpreter.Verdict:
        for release in _running:
            release.execute(txn.id.encode())
        return execute(txn, *rest)

    def faulty_alone(calls: PlainCalls, i: int) -> int | None:
        try:
            for release in _running:
                release.execute(calls.id_of(i))
        except Exception:  # noqa: BLE001 - as `alone` does; the careful path raises it again
            return None
        return alone(calls, i)

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(PlainCalls, "alone", faulty_alone))
        stack.enter_context(mock.patch.object(records, "decode", faulty_decode))
        stack.enter_context(mock.patch.object(interpreter, "execute", faulty_execute))
        yield


def packed_otherwise(released: TimedRecords, earlier: Ints, procs: int) -> Plan:
    """The planner of another release: the same groups on other partitions."""
    plan = plan_transactions(released, earlier, procs)
    plan.proc = (plan.proc + 1) % procs
    return plan
