"""Queues under random workers and faults, in virtual time, against a queue in plain Python.

Workers enqueue, claim, complete, extend, release and cancel, or die with what they hold, while
facades are killed, and requests are lost, doubled and late. Afterwards every call that the log has
executed is compared with the model: in the order of the log, at its commit time.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from pathlib import Path

import pytest

from simulator.event_loop import VirtualLoop, run_virtual
from simulator.network import Network
from streamydb.client.awaiting.client import AsyncClient
from streamydb.client.awaiting.http import AsyncHttpTransport
from streamydb.client.awaiting.views import AsyncView
from streamydb.client.connections import HttpOptions
from streamydb.client.errors import ClientError, OutcomeUnknownError
from streamydb.client.session import Options, Session
from streamydb.local.module_folder import FolderModules
from streamydb.testing.memory import MemoryDatabase
from streamydb_layers.errors import ClaimLostError, DuplicateIdError, MovedError
from streamydb_layers.queue import AsyncQueue, Claim
from tests.support.queue_model import judged
from tests.support.seeds import seeds

ATTEMPTS_MAX = 3


class World:
    """One seed: a database, the way to it, and workers."""

    def __init__(self, seed: int, loop: VirtualLoop, folder: Path) -> None:
        self.rng = random.Random(f"queues {seed}")
        self.database = MemoryDatabase(modules=FolderModules([folder]))
        self.folder = folder
        self.database.clock = self.now_ms
        self.network = Network(self.rng, self.database)
        self.loop = loop
        self.added: dict[str, str] = {}
        self.received: list[Claim] = []
        self.completed: set[str] = set()
        self.dead: set[str] = set()
        self.deployed = 0
        self.over = False

    def now_ms(self) -> int:
        return 1_700_000_000_000 + int(1_000 * self.loop.time())

    def queue(self) -> AsyncQueue:
        session = Session(
            Options(timeout_s=self.rng.choice([3.0, 10.0])), self.loop.time, self.rng.random,
            wall_ms=self.now_ms,
        )  # fmt: skip
        transport = AsyncHttpTransport(HttpOptions("http://facade.test"), self.network)
        made = AsyncQueue(
            AsyncClient(transport, session), "jobs", attempts_max=ATTEMPTS_MAX,
            lane=self.rng.choice([None, 3, 3]),
        )  # fmt: skip
        made.core._turn = self.rng.randrange(16)
        return made

    async def run(self) -> None:
        """Let workers work in trouble, then drain the queue without any."""
        await self.network.start()
        trouble = asyncio.create_task(self._trouble())
        workers = [Worker(self, number) for number in range(3)]
        await asyncio.gather(*(worker.work() for worker in workers))
        self.over = True
        await trouble
        while self.network.late:
            await asyncio.wait(list(self.network.late))
        await self._drain(self.queue())
        await self.network.kill()

    async def _drain(self, queue: AsyncQueue) -> None:
        """Complete all that there is; what is claimed comes back when its time is up."""
        assert not await queue.deploy(self.folder), "it was deployed before"
        depth = await queue.depth()
        while depth.waiting + depth.claimed:
            claims = await queue.claim(64, timeout_s=0.5)
            self.received += claims
            await queue.complete(*claims)
            self.completed |= {claim.id for claim in claims}
            await asyncio.sleep(0 if claims else 5)
            assert self.loop.time() < 10_000, "it never ends"
            depth = await queue.depth()
        assert await queue.peek() == []
        self.dead = {each.id for each in await queue.dead()}

    async def _trouble(self) -> None:
        rng, network = self.rng, self.network
        while not self.over:
            network.world.clean()
            await asyncio.sleep(rng.choice([0.5, 3, 8]))
            network.world.spoil(rng, silent=False)
            network.world.stalled = False
            if rng.random() < 0.3:
                await network.kill()
                await asyncio.sleep(rng.choice([0.3, 2]))
                await network.start()
            await asyncio.sleep(rng.choice([0.2, 2, 6]))
        network.world.clean()


class Worker:
    """Does something with the queue, again and again."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.rng = world, world.rng
        self.queue = world.queue()
        self.name = f"w{number}"
        self.held: list[Claim] = []
        self.turn = 0

    async def work(self) -> None:
        await self.deploy()
        acts = [self.enqueue, self.enqueue, self.claim, self.claim, self.end, self.end,
                self.within, self.cancel, self.cancel, self.redrive]  # fmt: skip
        for self.turn in range(16):
            with suppress(MovedError):
                await self.rng.choice(acts)()
            await asyncio.sleep(self.rng.choice([0, 0.2, 2]))

    async def deploy(self) -> None:
        """Have the procedures, whoever has deployed them, and wherever that was cut off."""
        while True:
            with suppress(ClientError):
                self.world.deployed += await self.queue.deploy(self.world.folder)
                return

    async def enqueue(self) -> None:
        """Some items with ids of their own; what became of each is noted."""
        ids = [f"{self.name}-{self.turn}-{n}" for n in range(self.rng.choice([1, 1, 4, 30]))]
        try:
            await self.queue.enqueue_many([{"of": each} for each in ids], item_ids=ids)
            said = "there"
        except OutcomeUnknownError:
            said = "unknown"
        except ClientError:
            said = "absent"
        self.world.added |= dict.fromkeys(ids, said)

    async def claim(self) -> None:
        """Claim some; sometimes all that were claimed before are forgotten, as by one who died."""
        if self.rng.random() < 0.2:
            self.held.clear()
        with suppress(ClientError):
            timeout_s = self.rng.choice([0.5, 3, 20])
            found = await self.queue.claim(self.rng.choice([1, 3, 20]), timeout_s=timeout_s)
            self.held += found
            self.world.received += found

    async def end(self) -> None:
        """Complete, extend or release some; sometimes twice."""
        some = [self.held.pop(self.rng.randrange(len(self.held))) for _ in self.held[:3]]
        how = self.rng.choice(["complete", "complete", "release", "extend"])
        seconds = self.rng.choice([0, 1, 4, 40])
        named = {"complete": {}, "release": {"delay_s": seconds}, "extend": {"timeout_s": seconds}}
        for _ in range(self.rng.choice([1, 1, 2])):
            try:
                done = await getattr(self.queue, how)(*some, **named[how])
            except (ClaimLostError, ClientError):
                continue
            if how == "complete":
                self.world.completed |= {claim.id for claim in some}
            elif how == "extend":
                self.held += done

    async def within(self) -> None:
        """Complete one within a transaction of the worker's own."""
        if not self.held:
            return
        claim = self.held.pop()

        async def done(view: AsyncView) -> None:
            view.put(f"done/{claim.id}", claim.token)
            await self.queue.complete_in(view, claim)

        with suppress(ClaimLostError, ClientError):
            await self.queue.client.run(done)
            self.world.completed.add(claim.id)

    async def redrive(self) -> None:
        """Enqueue again what was given up."""
        with suppress(ClientError, DuplicateIdError):
            for each in await self.queue.dead():
                await self.queue.redrive(each.id)

    async def cancel(self) -> None:
        """Cancel one that may be waiting, claimed, or gone; perhaps add it again at once."""
        with suppress(ClientError, DuplicateIdError):
            if self.world.added:
                item = self.rng.choice(list(self.world.added))
                if await self.queue.cancel(item) and self.rng.random() < 0.7:
                    await self.queue.enqueue({"of": item}, item_id=item)


@pytest.mark.parametrize("seed", range(seeds(8, 4)))
def test_every_item_is_claimed_once_at_a_time_and_none_is_lost(seed: int, tmp_path: Path) -> None:
    made: list[World] = []

    async def run(loop: VirtualLoop) -> None:
        made.append(World(seed, loop, tmp_path))
        await made[0].run()

    run_virtual(run)
    (world,) = made
    model = judged(world.database)
    assert not model.waiting
    assert not model.claimed
    for item, said in world.added.items():
        assert (item in model.ended) >= (said == "there"), f"{item} is lost"
        assert (item in model.ended) <= (said != "absent"), f"{item} was not to be"
    assert model.ended.keys() <= world.added.keys()
    assert {(claim.id, claim.token) for claim in world.received} <= model.claims
    assert all(claim.value == {"of": claim.id} for claim in world.received)
    for item in world.completed:
        assert model.ended[item] in {"completed", "cancelled"}
    assert world.dead == {item for item, how in model.ended.items() if how == "dead"}
    assert "completed" in model.ended.values()
    assert world.deployed <= model.deploys
