"""The client library under faults: one seed, some clients, every call judged for its one effect.

Clients run functions, transactions and reads in virtual time, while facades are killed and restart
slowly, answers are lost after the append, requests are refused, lost, doubled and late, the log
refuses and the pipeline stalls, clocks differ, and ids may be remembered no longer than they must
be. Who asks again, or sends again, may do so long after the deadline. A share of the seeds has
clients without a facade: straight to log and read model. Each writing call has a mark of its own,
and leaves it in the database as often as it has an effect. Afterwards:

- a call that returned has left its mark once; one that raised an error that promises that nothing
  was written, never; one of unknown outcome at most once; however late copies came;
- no update of a function under `run` is lost: the counter is the number of marks;
- a strong read shows at least what was acknowledged before it began;
- nobody gave up before the time, or was at it much longer than that;
- nobody failed where all had been well for long.
"""

from __future__ import annotations

import asyncio
import math
import random
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from simulator.event_loop import VirtualLoop, run_virtual
from simulator.network import Network
from streamydb.client.awaiting.client import AsyncClient
from streamydb.client.awaiting.http import AsyncHttpTransport
from streamydb.client.awaiting.transports import AsyncTransport
from streamydb.client.awaiting.views import AsyncAtomic
from streamydb.client.connections import HttpOptions
from streamydb.client.errors import ClientError, OutcomeUnknownError
from streamydb.client.problems import AbortedError, DeadlinePassedError
from streamydb.client.session import Options, Session
from streamydb.facade.direct import DirectTransport
from streamydb.facade.settings import FacadeSettings
from streamydb.limits import ID_WINDOW_DEFAULT
from streamydb.records import decode_value
from streamydb.testing.memory import MemoryDatabase
from streamydb.testing.memory_feed import MemoryChanges

__all__ = ["ClientsOutcome", "run_clients"]

_CALLS: Final = 12
_EPOCH_MS: Final = 1_700_000_000_000
_LATER_S: Final = 6.0
"""A call may end so much later than its time: 5 s for a connection that is dead, and the way."""

_WELL_S: Final = 18.0
"""After so long without trouble nothing of it is left: a request to a machine that was gone ends in
15 s, and the pause after it in three.
"""

_RUNS, _ADDS = "runs/", "adds/"


@dataclass(slots=True)
class ClientsOutcome:
    """The outcome of a seed.

    Attributes:
        seed: which.
        problems: what is wrong; empty if all is well.
        calls: how many calls ended how: `returned`, or the name of the error.
        killed: how often a facade was killed.
        seconds: how much virtual time has passed.
    """

    seed: int
    problems: list[str] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)
    killed: int = 0
    seconds: float = 0


def run_clients(seed: int) -> ClientsOutcome:
    """Run one seed; the same seed always does the same."""
    return run_virtual(lambda loop: _Simulation(seed, loop).run())


@dataclass(slots=True)
class _Mark:
    """A writing call: where its mark goes, and how often it may be there."""

    key: str
    mark: str
    least: int = 0
    most: int = 1
    said: str = ""


class _Simulation:
    """One seed."""

    def __init__(self, seed: int, loop: VirtualLoop) -> None:
        self.rng = random.Random(f"clients {seed}")  # noqa: S311 - repeatable
        self.outcome = ClientsOutcome(seed)
        window = self.rng.choice([1, 20, ID_WINDOW_DEFAULT])
        self.database = MemoryDatabase(id_window=window)
        self.database.clock = self.wall_ms
        self.database.executing = self.database.resolving = False
        self.network = Network(self.rng, self.database)
        self.marks: list[_Mark] = []
        self.acknowledged = {"n": 0, "total": 0}
        self.silent = self.rng.random() < 0.4
        self.direct = self.rng.random() < 0.2
        self._loop = loop
        self._over = False
        self._well_since = 0.0

    async def run(self) -> ClientsOutcome:
        """Let clients work in a world that is bad and good by turns; judge when it is at rest."""
        await self.network.start()
        others = [asyncio.create_task(each) for each in (self._pipeline(), self._trouble())]
        clients = [_Worker(self, number) for number in range(self.rng.choice([1, 2, 3]))]
        await asyncio.gather(*(client.work() for client in clients))
        self._over = True
        await asyncio.gather(*others)
        while self.network.late:
            await asyncio.wait(list(self.network.late))
        await self.network.kill()
        self.database.executing = self.database.resolving = True
        self.database.run()
        self._judge()
        self.outcome.killed = self.network.world.killed
        self.outcome.seconds = round(self._loop.time(), 3)
        return self.outcome

    async def _pipeline(self) -> None:
        """Execute in batches, and have the read model follow; stalls come and go."""
        rng, database, world = self.rng, self.database, self.network.world
        while not (self._over and not self.network.late):
            await asyncio.sleep(rng.choice([0.02, 0.1, 0.5]))
            if world.stalled:
                continue
            database.execute()
            if rng.random() < 0.05:
                database.log.end_transaction()
            if rng.random() < 0.7:
                database.resolve()

    def _is_over(self) -> bool:
        """Return True if the clients are done; a call, because it changes while one awaits."""
        return self._over

    async def _trouble(self) -> None:
        """Turn the world bad, with restarts that take their time, and good again."""
        rng, network = self.rng, self.network
        log = self.database.log
        while not self._over:
            network.world.clean()
            log.refusing = log.unknowing = False
            self._well_since = self._loop.time()
            await asyncio.sleep(rng.choice([0.5, 3, 8, 40]))
            if self._is_over():
                break
            self._well_since = math.inf
            network.world.spoil(rng, silent=self.silent)
            share = 0.5 if self.direct else 0.2
            log.refusing, log.unknowing = rng.random() < share, rng.random() < share
            if rng.random() < 0.7 and not self.direct:
                await network.kill()
                await asyncio.sleep(rng.choice([0.3, 4, 12, 25]))
                await network.start()
            await asyncio.sleep(rng.choice([0.2, 2, 10, 20]))
        network.world.clean()
        log.refusing = log.unknowing = False

    def wall_ms(self) -> int:
        """Return the time of day."""
        return _EPOCH_MS + int(1_000 * self._loop.time())

    def well_s(self) -> float:
        """Return for how long all has been well."""
        return max(0.0, self._loop.time() - self._well_since)

    def transport(self) -> AsyncTransport:
        """Return the transport of a client: HTTP, or straight to log and read model."""
        if not self.direct:
            return AsyncHttpTransport(HttpOptions("http://facade.test"), self.network)
        database = self.database
        changes = MemoryChanges(database.changes)
        return DirectTransport(database.model, database.log, changes, FacadeSettings())

    def complain(self, what: str) -> None:
        """Note what is wrong."""
        self.outcome.problems.append(what)

    def _judge(self) -> None:
        """Compare the marks with what was said of the calls."""
        with self.database.model.snapshot() as snapshot:
            state = {e.key: decode_value(e.value) for e in snapshot.scan(limit=1_000_000)}
        found = Counter(
            (key, mark) for key, marks in state.items() if isinstance(marks, list) for mark in marks
        )
        for mark in self.marks:
            times = found.pop((mark.key, mark.mark), 0)
            if not mark.least <= times <= mark.most:
                self.complain(f"{mark.mark} is there {times} times, and the call {mark.said}")
        if found:
            self.complain(f"nobody wrote {sorted(found)}")
        for counter, prefix in (("n", _RUNS), ("total", _ADDS)):
            marks = sum(len(value) for key, value in state.items() if key.startswith(prefix))
            if state.get(counter, 0) != marks:
                self.complain(f"{counter} is {state.get(counter)}, and there are {marks} marks")


class _Worker:
    """A client, and what it does."""

    def __init__(self, simulation: _Simulation, number: int) -> None:
        rng = simulation.rng
        self._simulation = simulation
        self._rng = rng
        self._name = f"c{number}"
        self._loop = simulation._loop  # noqa: SLF001 - of this file
        self._timeout_s = rng.choice([3.0, 5.0, 20.0, 40.0])
        self._calls = 0
        self._dice = random.Random(f"{self._name} {rng.random()}")  # noqa: S311 - repeatable
        skew_ms = rng.choice([0, 0, 20_000, -20_000])
        session = Session(
            Options(timeout_s=self._timeout_s, conflicts_max=1_000),
            self._loop.time, rng.random, self._new_id, lambda: simulation.wall_ms() + skew_ms,
        )  # fmt: skip
        self._client = AsyncClient(simulation.transport(), session)

    def _new_id(self) -> str:
        return str(uuid.UUID(int=self._rng.getrandbits(128), version=4))

    async def work(self) -> None:
        """Make some calls, one after the other."""
        for _ in range(_CALLS):
            await self._rng.choice([self._run, self._run, self._add, self._check, self._read])()
            await asyncio.sleep(self._rng.random())

    async def _run(self) -> None:
        """Count up under `run`, and leave a mark in the same transaction."""
        mark = self._mark(_RUNS)

        async def function(view: Any) -> None:
            count = await view.get("n", 0)
            marks = await view.get(mark.key, [])
            view.put("n", count + 1)
            view.put(mark.key, [*marks, mark.mark])

        if await self._judged(mark, lambda: self._client.run(function), bounded=False):
            self._simulation.acknowledged["n"] += 1

    async def _add(self) -> None:
        """Add up blindly."""
        mark = self._mark(_ADDS)
        adding = self._client.atomic().add("total", 1).append(mark.key, mark.mark)
        if await self._judged(mark, adding.commit):
            self._simulation.acknowledged["total"] += 1
            if self._dice.random() < 0.1:
                await self._commit_again(mark, adding)

    async def _commit_again(self, mark: _Mark, adding: AsyncAtomic) -> None:
        """Commit what has been committed, long after, as one does who has lost the answer."""
        await self._wait_long()
        try:
            await adding.commit()
        except (AbortedError, DeadlinePassedError) as error:
            self._simulation.complain(f"{mark.mark} returned, then raised {type(error).__name__}")
        except ClientError:
            pass

    async def _check(self) -> None:
        """Write what only one of several can, by the version that was seen."""
        mark = self._mark("checks/")
        seen: list[Any] = []

        async def look() -> None:
            seen.append(await self._client.entry("flag", consistency="session"))

        if not await self._judged(None, look):
            return
        atomic = self._client.atomic().check(seen[0]).put("flag", mark.mark)
        await self._judged(mark, atomic.append(mark.key, mark.mark).commit)

    async def _read(self) -> None:
        """Read what others have been told of."""
        known = dict(self._simulation.acknowledged)
        found: list[Any] = []

        async def look() -> None:
            found.append(await self._client.read(["n", "total"]))

        if await self._judged(None, look):
            for key, least in known.items():
                if (found[0][key] or 0) < least:
                    self._simulation.complain(f"{key} was read as {found[0][key]} after {least}")

    def _mark(self, prefix: str) -> _Mark:
        self._calls += 1
        mark = _Mark(f"{prefix}{self._name}", f"{self._name}/{self._calls}")
        self._simulation.marks.append(mark)
        return mark

    async def _judged(
        self, mark: _Mark | None, call: Callable[[], Awaitable[Any]], *, bounded: bool = True
    ) -> bool:
        """Make a call, and note what its end promises; whether it has returned.

        With `bounded` it is one call to the core, which has one time.
        """
        begun = self._loop.time()
        promise = mark or _Mark("", "")
        try:
            await call()
        except OutcomeUnknownError as unknown:
            said = f"raised {type(unknown).__name__}"
            self._check_time(begun, said, bounded=bounded)
            promise.said = said
            return await self._resolved(promise, unknown)
        except AbortedError as error:
            promise.most, promise.said = 0, f"raised {type(error).__name__}"
        except ClientError as error:
            promise.most, promise.said = 0, f"raised {type(error).__name__}: {error}"
            self._check_time(begun, promise.said, bounded=bounded)
        else:
            promise.least, promise.said = 1, "returned"
            self._check_end(begun, promise.said, bounded=bounded)
        name = promise.said.partition(":")[0].removeprefix("raised ")
        self._simulation.outcome.calls[name] += 1
        return promise.said == "returned"

    async def _resolved(self, mark: _Mark, unknown: OutcomeUnknownError) -> bool:
        """Ask for the outcome that was unknown, or send again; sometimes leave it at that."""
        again = self._rng.choice([None, unknown.ask, unknown.send_again])
        self._simulation.outcome.calls["OutcomeUnknownError"] += 1
        if again is None:
            return False
        await self._wait_long()
        try:
            await again()
        except (AbortedError, DeadlinePassedError) as error:
            mark.most, mark.said = 0, f"{mark.said}, then {type(error).__name__}"
        except ClientError:
            return False
        else:
            mark.least, mark.said = 1, f"{mark.said}, then that it was committed"
        return mark.least == 1

    async def _wait_long(self) -> None:
        """Let time pass, and transactions: mostly past the id window, often past the deadline."""
        await asyncio.sleep(self._dice.choice([0, 30, 200, 200]))
        for _ in range(self._dice.choice([0, 5])):
            with suppress(ClientError):
                await self._client.put("filler", self._calls)

    def _check_time(self, begun: float, said: str, *, bounded: bool) -> None:
        """Nobody gives up early, nor holds on for long after the time."""
        took = self._loop.time() - begun
        if took < self._timeout_s - 0.2:
            self._simulation.complain(f"a call {said} after {took:.1f} of {self._timeout_s:g} s")
        if self._simulation.well_s() > _WELL_S:
            self._simulation.complain(f"a call {said} though all was well")
        self._check_end(begun, said, bounded=bounded)

    def _check_end(self, begun: float, said: str, *, bounded: bool) -> None:
        """Nobody holds on for long after the time."""
        took = self._loop.time() - begun
        if bounded and took > self._timeout_s + _LATER_S:
            self._simulation.complain(f"a call {said} after {took:.1f}, not {self._timeout_s:g} s")
