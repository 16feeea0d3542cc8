"""Helpers of tests of layers: a database in memory, layers on either client, threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

from streamydb.client import Options
from streamydb.testing.clients import Awaited, MemoryHost
from streamydb_layers.deployment import module_files
from streamydb_layers.documents import AsyncCollection, Collection
from streamydb_layers.leaderboard import AsyncLeaderboard, Leaderboard
from streamydb_layers.leases import AsyncLeases, Leases
from streamydb_layers.queue import AsyncQueue, Queue
from streamydb_layers.steps import Flow, Step

DRIVERS = ["blocking", "awaiting"]
QUICK = Options(backoff_s=0.001, backoff_max_s=0.01, conflicts_max=200)
"""For many threads that conflict with each other all the time."""

_KINDS: dict[str, tuple[Any, Any]] = {
    "collection": (Collection, AsyncCollection),
    "queue": (Queue, AsyncQueue),
    "board": (Leaderboard, AsyncLeaderboard),
    "leases": (Leases, AsyncLeases),
}


def with_modules(host: MemoryHost) -> MemoryHost:
    """Put the layers' modules where the database finds them."""
    for file in module_files():
        host.database.modules.put(file.read_bytes())
    return host


def layer(host: MemoryHost, driver: str, kind: str, name: str, **options: Any) -> Any:
    """A layer whose methods block, whichever client it is on."""
    blocking, awaiting = _KINDS[kind]
    if driver == "blocking":
        return blocking(host.connect(options=QUICK), name, **options)
    client = host.connect_async("direct", options=QUICK)
    return Awaited(host.portal, awaiting(client, name, **options))


def together(functions: Iterable[Callable[[], object]]) -> None:
    """Run functions in threads, and raise what the first of them raised."""
    errors: list[BaseException] = []

    def guarded(function: Callable[[], object]) -> None:
        try:
            function()
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(each,)) for each in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def cut_off(flow: Flow[Any], steps: int) -> Flow[Any]:
    """The first steps of a flow."""
    step: Step = next(flow)
    for _ in range(steps):
        step = flow.send((yield step))
    flow.close()


def interrupted(flow: Flow[Any], steps: int, action: Callable[[], object]) -> Flow[Any]:
    """A flow with something that happens between its steps."""
    step: Step = next(flow)
    for number in count(1):
        error: Exception | None = None
        try:
            answer = yield step
        except Exception as raised:  # noqa: BLE001 - the flow decides what it means
            error = raised
        if number == steps:
            action()
        try:
            step = flow.send(answer) if error is None else flow.throw(error)
        except StopIteration as end:
            return end.value
