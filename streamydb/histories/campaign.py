"""Many clients and watchers on a database, in several processes, each with a file of its own.

It ends when the time is up or when the file `stop` appears in the folder. Then one more client
reads everything, strongly, and the watchers go on until they have got all there is.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import httpx
import msgspec

from streamydb.errors import StreamyError
from streamydb.facade.payloads import new_id
from streamydb.histories.recording import Recorder
from streamydb.histories.records import (
    Append,
    History,
    Line,
    Read,
    Request,
    Scan,
    Watch,
    Write,
    encode_line,
    read_history,
)
from streamydb.histories.watching import Watcher
from streamydb.histories.workload import LISTS, REGISTERS, Client, Shape

__all__ = ["STOP", "Campaign", "CampaignError", "files", "run"]

STOP: Final = "stop"
"""Name of the file that ends a campaign before its time."""

_SETTLE_S: Final = 120.0
_PAUSE_S: Final = 0.3
_KEYS: Final = 200


class CampaignError(StreamyError):
    """A campaign could not be ended in order; the message says what did not happen."""


class Campaign(msgspec.Struct, frozen=True, kw_only=True):
    """What to do.

    Attributes:
        urls: the facades.
        folder: where the history goes: a file for each process.
        seconds: how long.
        clients: how many, in each process.
        watchers: how many; the first is of all keys from the beginning on.
    """

    urls: list[str]
    folder: Path
    seconds: float = 60.0
    clients: int = 16
    processes: int = 1
    watchers: int = 3
    seed: int = 1
    shape: Shape = Shape()

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
            watchers = [_watcher(http, campaign, number, sink)
                        for number in range(campaign.watchers)]  # fmt: skip
            tasks = [asyncio.create_task(watcher.run()) for watcher in watchers]
            try:
                with ProcessPoolExecutor(campaign.processes, get_context("spawn")) as pool:
                    numbers = range(campaign.processes)
                    await asyncio.gather(
                        *(loop.run_in_executor(pool, _load, campaign, n) for n in numbers)
                    )
                seq = await _finish(http, campaign, sink)
                await _until(lambda: _reached(watchers, seq), "all changes at the watchers")
            finally:
                for task in tasks:
                    task.cancel()
                for task in tasks:
                    with suppress(asyncio.CancelledError):
                        await task


@contextmanager
def _sink(path: Path) -> Iterator[Callable[[Line], None]]:
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
    deadline = time.monotonic() + campaign.seconds
    first = process * campaign.clients
    with _sink(path) as sink:
        async with _http() as http:
            await asyncio.gather(
                *(
                    _client(http, campaign, first + number, deadline, sink)
                    for number in range(campaign.clients)
                )
            )


async def _client(
    http: httpx.AsyncClient, campaign: Campaign, number: int, deadline: float,
    sink: Callable[[Line], None],
) -> None:  # fmt: skip
    """One client until the end."""
    rng = random.Random(f"{campaign.seed} {number}")  # noqa: S311 - reproducible choices
    recorder = Recorder(http, campaign.urls, rng, sink, campaign.shape)
    client = Client(number, campaign.shape, rng, new_id)
    while time.monotonic() < deadline and not campaign.stop.exists():
        operation = await recorder.perform(client, client.next())
        if operation.outcome == "failed":
            await asyncio.sleep(_PAUSE_S * (0.5 + rng.random()))


def _watcher(
    http: httpx.AsyncClient, campaign: Campaign, number: int, sink: Callable[[Line], None]
) -> Watcher:
    prefix = ("", LISTS, REGISTERS)[number % 3]
    rng = random.Random(f"{campaign.seed} watcher {number}")  # noqa: S311 - reproducible choices
    watch = Watch(watcher=number, prefix=prefix, since=0, began_ns=time.monotonic_ns())
    return Watcher(http, campaign.urls, rng, sink, watch, campaign.shape.leave)


async def _finish(
    http: httpx.AsyncClient, campaign: Campaign, sink: Callable[[Line], None]
) -> int:
    """Read everything that was written; return the seq that every watcher must reach."""
    keys = _keys(read_history(files(campaign.folder)))
    number = campaign.clients * campaign.processes
    rng = random.Random(f"{campaign.seed} end")  # noqa: S311 - reproducible choices
    recorder = Recorder(http, campaign.urls, rng, sink, campaign.shape)
    client = Client(number, campaign.shape, rng, new_id)

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
        await surely(lambda chunk=chunk: Read(chunk))  # type: ignore[misc]
    await surely(lambda: Scan("", _KEYS))
    marks = (f"{number}.end.{n}" for n in range(1_000_000))
    seqs = [
        await surely(lambda: Write(new_id(), f"{REGISTERS}end", next(marks))),
        await surely(lambda: Append(new_id(), {f"{LISTS}end": [next(marks)]})),
    ]
    return min(seqs)


def _keys(history: History) -> list[str]:
    """All keys that were written."""
    keys: set[str] = set()
    for operation in history.operations:
        if isinstance(operation.request, Write):
            keys.add(operation.request.key)
        elif isinstance(operation.request, Append):
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
