"""Reads that are cancelled while they wait, for a thread or for the read model, at any time.

Nothing leaks: no snapshot stays open, none is closed while a thread reads it, limits are given
back, and the other reads go on and see what they have to.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamydb.facade import FacadeSettings, create_app
from streamydb.testing.in_process import HttpAnswer, InProcess, until
from streamydb.testing.memory import MemoryDatabase
from streamydb.testing.memory_model import MemoryEntry, MemorySnapshot
from tests.support.seeds import seeds

pytestmark = [pytest.mark.randomized, pytest.mark.timeout(120)]

STEPS: Final = 40
WAITERS: Final = 3
THREADS: Final = 4
KEYS: Final = [f"k/{number}" for number in range(200)]
SEEN: Counter[str] = Counter()


class Watched:
    """The snapshots that are open, and the threads that read one until they may go on."""

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.open: set[int] = set()
        self.faults: list[str] = []
        self.ended = False
        self.held: list[threading.Event] = []
        self._all: list[MemorySnapshot] = []  # so that no other has the id of one
        begin, read, scan = MemorySnapshot.__init__, MemorySnapshot.get_many, MemorySnapshot.scan

        def begun(snapshot: MemorySnapshot, *args: Any) -> None:
            begin(snapshot, *args)
            self._all.append(snapshot)
            self.open.add(id(snapshot))

        def get_many(snapshot: MemorySnapshot, *args: Any) -> list[MemoryEntry | None]:
            self._reading(snapshot)
            return read(snapshot, *args)

        def scanned(snapshot: MemorySnapshot, *args: Any, **given: Any) -> list[MemoryEntry]:
            self._reading(snapshot)
            return scan(snapshot, *args, **given)

        def closed(snapshot: MemorySnapshot, *_: object) -> None:
            self.open.discard(id(snapshot))

        for name, method in (
            ("__init__", begun), ("get_many", get_many), ("scan", scanned), ("__exit__", closed)
        ):  # fmt: skip
            patched.setattr(MemorySnapshot, name, method)

    def end(self) -> None:
        """Let all threads go on, also after a failure."""
        self.ended = True
        for each in self.held:
            each.set()

    def _reading(self, snapshot: MemorySnapshot) -> None:
        if threading.current_thread() is threading.main_thread():
            return
        go_on = threading.Event()
        self.held.append(go_on)
        if self.ended:
            return
        if not go_on.wait(60) or id(snapshot) not in self.open:
            self.faults.append("a snapshot was closed while a thread read it")


class Reads:
    """A facade whose read model stands still until it is told, and reads that wait for it."""

    def __init__(self, seed: int, watched: Watched, client: InProcess, database: Any) -> None:
        self.rng = random.Random(seed)
        self.watched, self.client, self.database = watched, client, database
        self.written = 0
        self.strong: dict[asyncio.Task[HttpAnswer], int] = {}
        self.threaded: set[asyncio.Task[HttpAnswer]] = set()
        self.cancelled: set[asyncio.Task[HttpAnswer]] = set()

    async def write(self) -> None:
        """Write, so that the read model is behind."""
        self.written += 1
        made = await self.client.request("PUT", "/v1/kv/k/0", b"%d" % self.written)
        assert made.status in {200, 201, 204}

    async def read_strong(self) -> None:
        """Begin a read that waits, if it is let in."""
        waiting = sum(not task.done() for task in self.strong)
        task = asyncio.create_task(self.client.request("GET", "/v1/kv/k/0?consistency=strong"))
        await _settle()
        if waiting >= WAITERS:
            answer = await task
            assert (answer.status, answer.problem) == (503, "overloaded")
            SEEN["refused"] += 1
            return
        self.strong[task] = self.written

    async def read_in_thread(self) -> None:
        """Begin a read that a thread performs."""
        if sum(not task.done() for task in self.threaded) >= THREADS:
            return
        seq = f"at={self.rng.randint(1, self.database.model.latest().seq)}"
        if self.rng.random() < 0.5:
            request = self.client.request("GET", f"/v1/kv?limit=500&{seq}")
        else:
            body = '{"keys":["' + '","'.join(KEYS) + '"],"' + seq.replace("=", '":') + "}"
            request = self.client.request("POST", "/v1/read", body.encode())
        self.threaded.add(asyncio.create_task(request))
        await _settle()

    async def cancel(self) -> None:
        """Cancel a read, more than once perhaps."""
        left = [task for task in (*self.strong, *self.threaded) if not task.done()]
        if not left:
            return
        task = self.rng.choice(left)
        for _ in range(self.rng.choice([1, 1, 2, 4])):
            task.cancel()
            await asyncio.sleep(0)
        self.cancelled.add(task)
        await _settle()
        SEEN["cancelled"] += 1
        if task in self.strong:
            assert task.done(), "nothing keeps it"

    async def release(self) -> None:
        """Let a thread go on."""
        if self.watched.held:
            self.watched.held.pop(self.rng.randrange(len(self.watched.held))).set()
        await _settle()

    async def resolve(self) -> None:
        """Let the read model come as far as it can: no read waits for it any more."""
        self.database.resolve()
        await until(lambda: all(task.done() for task in self.strong))

    async def end(self) -> None:
        """Let all reads end; look at what they answered."""
        await self.resolve()
        while not all(task.done() for task in self.threaded):
            await self.release()
        for task in (*self.strong, *self.threaded):
            if task.cancelled():
                assert task in self.cancelled
                continue
            answer = task.result()
            assert answer.status == 200, answer
            if task in self.strong:
                assert int(answer.body) >= self.strong[task], "it is linearizable"


async def _settle() -> None:
    """Let everything that can run do so."""
    for _ in range(30):
        await asyncio.sleep(0)


async def _run(seed: int, watched: Watched) -> None:
    database = MemoryDatabase()
    limits = FacadeSettings(poll_s=0.001, waiters_max=WAITERS, read_timeout_s=100, tick_s=0)
    app = create_app(database.model, database.log, database.changes, limits)
    async with InProcess(app) as client, AsyncExitStack() as stack:
        stack.callback(watched.end)
        reads = Reads(seed, watched, client, database)
        await reads.write()
        database.resolving = False
        await reads.write()
        steps = [
            reads.write, reads.read_strong, reads.read_strong, reads.read_in_thread, reads.cancel,
            reads.cancel, reads.release, reads.resolve,
        ]  # fmt: skip
        weights = [2, 4, 4, 5, 4, 4, 3, 1]
        for _ in range(STEPS):
            [step] = reads.rng.choices(steps, weights)
            await step()
        await reads.end()
        await _everybody_is_served(reads)
    assert not watched.faults
    assert not watched.open, "no snapshot is left"
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})  # no task is left


async def _everybody_is_served(reads: Reads) -> None:
    """As many reads wait as may, and all of them are answered."""
    await reads.write()
    reads.strong.clear()
    for _ in range(WAITERS + 1):
        await reads.read_strong()
    assert len(reads.strong) == WAITERS
    await reads.end()
    assert not any(task.cancelled() for task in reads.strong)


def _tried(seed: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        asyncio.run(_run(seed, Watched(patched)))


@given(st.integers(0, 2**32))
@settings(max_examples=seeds(40))
def test_reads_that_are_cancelled_leave_nothing_behind(seed: int) -> None:
    _tried(seed)


def test_reads_are_refused_and_cancelled_among_them() -> None:
    SEEN.clear()
    for seed in range(10):
        _tried(seed)
    assert min(SEEN["refused"], SEEN["cancelled"]) > 10, SEEN
