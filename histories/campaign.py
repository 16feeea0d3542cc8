"""Many clients and watchers on a database, in several processes, each with a file of its own.

It ends when the time is up, when there are enough operations, or when the file `stop` appears in
the folder. Then one more client reads everything, strongly, over REST, and the watchers go on until
they have got all there is.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Final, TypeAlias

import httpx
import msgspec

from histories.budget import Budget
from histories.library import make_recorders
from histories.recorder import HttpRecorder, Recorder
from histories.records import (
    AppendOperation,
    History,
    Line,
    ReadOperation,
    Request,
    ScanOperation,
    WatchOperation,
    WriteOperation,
    encode_line,
    read_history,
)
from histories.watcher import Watcher
from histories.workload import HistoryClient, Shape
from streamydb.client.session import new_id
from streamydb.errors import StreamyError
from streamydb.local.processes import end_with_parent

__all__ = ["STOP", "Campaign", "CampaignError", "files", "run"]

STOP: Final = "stop"
"""Name of the file that ends a campaign before its time."""

_SETTLE_S: Final = 120.0
_PAUSE_S: Final = 0.3
_KEYS: Final = 200

_Sink: TypeAlias = Callable[[Line], None]


class CampaignError(StreamyError):
    """A campaign could not be ended in order; the message says what did not happen."""


class Campaign(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a campaign.

    Attributes:
        urls: the facades.
        folder: where the history goes: a file for each process.
        seconds: how long at the most.
        operations: how many are to be answered at the most; None: as many as there is time for.
        clients: how many, in each process.
        watchers: how many; the first is of all keys.
        library: whether clients use the Python client's `run` instead of requests of their own.
        kafka: addresses kafka://... instead: the Python client writes to Kafka, past the facades.
    """

    urls: list[str]
    folder: Path
    seconds: float = 60.0
    operations: int | None = None
    clients: int = 16
    processes: int = 1
    watchers: int = 3
    seed: int = 1
    shape: Shape = Shape()
    library: bool = False
    kafka: list[str] = []

    @property
    def stop(self) -> Path:
        """The file that ends it."""
        return self.folder / STOP


def files(folder: Path) -> list[Path]:
    """The files of a history in a folder.

    Raises:
        CampaignError: there are none.
    """
    found = sorted(folder.glob("*.jsonl"))
    if not found:
        raise CampaignError(f"{folder} holds no history (files *.jsonl)")
    return found


def run(campaign: Campaign) -> History:
    """Run a campaign and return its history, which lies in the folder as well.

    Raises:
        CampaignError: the folder has a history already, or the database did not come back.
    """
    campaign.folder.mkdir(parents=True, exist_ok=True)
    if list(campaign.folder.glob("*.jsonl")):
        raise CampaignError(f"{campaign.folder} has a history already: name a new folder")
    asyncio.run(_run(campaign))
    return read_history(files(campaign.folder))


async def _run(campaign: Campaign) -> None:
    loop = asyncio.get_running_loop()
    path = campaign.folder / "main.jsonl"
    with _sink(path) as sink:
        async with _http() as http:
            since = await _begin(http, campaign)
            watchers = [_watcher(http, campaign, number, since, sink)
                        for number in range(campaign.watchers)]  # fmt: skip
            tasks = [asyncio.create_task(watcher.run()) for watcher in watchers]
            try:
                with ProcessPoolExecutor(
                    campaign.processes, get_context("spawn"), end_with_parent
                ) as pool:
                    numbers = range(campaign.processes)
                    await asyncio.gather(
                        *(loop.run_in_executor(pool, _load, campaign, n) for n in numbers)
                    )
                for watcher in watchers:
                    watcher.stay()
                seq = await _finish(http, campaign, sink)
                await _until(lambda: _reached(watchers, seq), "all changes at the watchers")
            finally:
                for task in tasks:
                    task.cancel()
                for task in tasks:
                    with suppress(asyncio.CancelledError):
                        await task


@contextmanager
def _sink(path: Path) -> Iterator[_Sink]:
    """Write lines to a file, each at once."""
    with path.open("wb", buffering=0) as file:

        def write(line: Line) -> None:
            file.write(encode_line(line))

        yield write


def _load(campaign: Campaign, process: int) -> None:
    """The clients of one process."""
    asyncio.run(_clients(campaign, process))


async def _clients(campaign: Campaign, process: int) -> None:
    path = campaign.folder / f"clients-{process}.jsonl"
    first = process * campaign.clients
    share = None if campaign.operations is None else campaign.operations // campaign.processes
    with _sink(path) as sink:
        budget = Budget(campaign.stop, campaign.seconds, share)
        async with _recorders(campaign, sink) as make:
            await asyncio.gather(
                *(
                    _client(make, campaign, first + number, budget)
                    for number in range(campaign.clients)
                )
            )


@asynccontextmanager
async def _recorders(
    campaign: Campaign, sink: _Sink
) -> AsyncIterator[Callable[[random.Random], Recorder]]:
    """Make the recorders of the clients of a process."""
    if campaign.library or campaign.kafka:
        urls = campaign.kafka or campaign.urls
        async with make_recorders(urls, sink, campaign.shape) as make:
            yield make
        return
    async with _http() as http:
        yield lambda rng: HttpRecorder(http, campaign.urls, rng, sink, campaign.shape)


async def _client(
    make: Callable[[random.Random], Recorder], campaign: Campaign, number: int, budget: Budget
) -> None:
    """One client until the end."""
    rng = random.Random(f"{campaign.seed} {number}")  # noqa: S311 - reproducible choices
    recorder = make(rng)
    client = HistoryClient(number, campaign.shape, rng, new_id)
    while budget.take():
        operation = await recorder.perform(client, client.next())
        if operation.outcome == "failed":
            budget.give_back()
            await asyncio.sleep(_PAUSE_S * (0.5 + rng.random()))


async def _begin(http: httpx.AsyncClient, campaign: Campaign) -> int:
    """The seq before the history."""
    rng = random.Random(f"{campaign.seed} begin")  # noqa: S311 - reproducible choices
    recorder = HttpRecorder(http, campaign.urls, rng, lambda _: None, campaign.shape)
    client = HistoryClient(0, campaign.shape, rng, new_id)

    async def told() -> bool:
        return (await recorder.perform(client, ReadOperation([]))).told is not None

    await _until(told, "an answer of the database at the beginning")
    return client.newest


def _watcher(
    http: httpx.AsyncClient, campaign: Campaign, number: int, since: int, sink: _Sink
) -> Watcher:
    shape = campaign.shape
    prefix = (shape.prefix, shape.all_lists, shape.all_registers)[number % 3]
    rng = random.Random(f"{campaign.seed} watcher {number}")  # noqa: S311 - reproducible choices
    watch = WatchOperation(watcher=number, prefix=prefix, since=since, began_ns=time.monotonic_ns())
    return Watcher(http, campaign.urls, rng, sink, watch, shape.leave)


async def _finish(http: httpx.AsyncClient, campaign: Campaign, sink: _Sink) -> int:
    """Read everything that was written; return the seq that every watcher must reach."""
    keys = _keys(read_history(files(campaign.folder)))
    number = campaign.clients * campaign.processes
    rng = random.Random(f"{campaign.seed} end")  # noqa: S311 - reproducible choices
    shape = campaign.shape
    recorder = HttpRecorder(http, campaign.urls, rng, sink, shape)
    client = HistoryClient(number, shape, rng, new_id)

    async def surely(make: Callable[[], Request]) -> int:
        seqs: list[int] = []

        async def succeeded() -> bool:
            answer = (await recorder.perform(client, make())).told
            seqs.append(answer.seq or 0 if answer else 0)
            return answer is not None

        await _until(succeeded, "an answer of the database at the end")
        return seqs[-1]

    for begin in range(0, len(keys), _KEYS):
        chunk = keys[begin : begin + _KEYS]
        await surely(lambda chunk=chunk: ReadOperation(chunk))  # type: ignore[misc]
    await surely(lambda: ScanOperation(shape.prefix, _KEYS))
    marks = (f"{number}.end.{n}" for n in range(1_000_000))
    seqs = [
        await surely(lambda: WriteOperation(new_id(), f"{shape.all_registers}end", next(marks))),
        await surely(lambda: AppendOperation(new_id(), {f"{shape.all_lists}end": [next(marks)]})),
    ]
    return min(seqs)


def _keys(history: History) -> list[str]:
    """All keys that were written."""
    keys: set[str] = set()
    for operation in history.operations:
        if isinstance(operation.request, WriteOperation):
            keys.add(operation.request.key)
        elif isinstance(operation.request, AppendOperation):
            keys.update(operation.request.appends)
    return sorted(keys)


def _http() -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    return httpx.AsyncClient(limits=limits, trust_env=False)


async def _reached(watchers: list[Watcher], seq: int) -> bool:
    return all(watcher.seq >= seq for watcher in watchers)


async def _until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait for something at the end of a campaign."""
    deadline = time.monotonic() + _SETTLE_S
    while not await condition():
        if time.monotonic() > deadline:
            raise CampaignError(f"{what}: did not come within {_SETTLE_S:.0f} s")
        await asyncio.sleep(_PAUSE_S)
