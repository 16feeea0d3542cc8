"""Queues for both clients: they run the core's flows."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from streamydb.client import AsyncClient, AsyncView, Builder, Client, View
from streamydb_layers.deployment import deploying
from streamydb_layers.drivers import awaiting, blocking, drive, drive_async, within, within_async
from streamydb_layers.queue.core import MODULE, QueueCore
from streamydb_layers.queue.items import Claim


class _Enqueuing:
    core: QueueCore

    @property
    def prefix(self) -> str:
        """The beginning of all keys of the queue; `client.watch(queue.prefix)` reports its
        changes.
        """
        return self.core.prefix

    def enqueue_in(self, atomic: Builder, *values: Any, item_ids: Sequence[str] = ()) -> list[str]:
        """Add items to a transaction that is being put together; return their ids."""
        return self.core.enqueue_in(atomic, *values, item_ids=item_ids)


class Queue(_Enqueuing):
    """A queue on a blocking client; threads may share it.

    Args:
        client: the database.
        name: the queue.
        attempts_max: how often an item is claimed before it is given up; the same for all workers.
        lane: where this worker's claims are kept (0 to 15), by default anywhere.
    """

    def __init__(
        self, client: Client, name: str, *, attempts_max: int = 5, lane: int | None = None
    ) -> None:
        self.client = client
        self.core = QueueCore(name, attempts_max, lane, secrets.randbelow(1 << 16))

    def deploy(self, folder: str | Path | None) -> bool:
        """Deploy the procedures of queues, unless they are; tell whether that was needed.

        Args:
            folder: the pipeline's folder of modules; None if `streamydb_queue` is in it already.
        """
        return drive(self.client, deploying(MODULE, folder))

    enqueue = blocking(QueueCore.enqueue)
    enqueue_many = blocking(QueueCore.enqueue_many)
    claim = blocking(QueueCore.claim)
    complete = blocking(QueueCore.complete)
    extend = blocking(QueueCore.extend)
    release = blocking(QueueCore.release)
    cancel = blocking(QueueCore.cancel)
    peek = blocking(QueueCore.peek)
    depth = blocking(QueueCore.depth)
    dead = blocking(QueueCore.dead)
    redrive = blocking(QueueCore.redrive)
    settle = blocking(QueueCore.settle)

    def complete_in(self, view: View, claim: Claim) -> None:
        """Remove an item that is done, in a function under `run`: with its effects, or not at all.
        Raises ClaimLostError: the claim is over.
        """
        _InView(view, self.core).complete(claim)


class AsyncQueue(_Enqueuing):
    """A queue on a client for coroutines; see `Queue`."""

    def __init__(
        self, client: AsyncClient, name: str, *, attempts_max: int = 5, lane: int | None = None
    ) -> None:
        self.client = client
        self.core = QueueCore(name, attempts_max, lane, secrets.randbelow(1 << 16))

    async def deploy(self, folder: str | Path | None) -> bool:
        """Deploy the procedures of queues; see `Queue.deploy`."""
        return await drive_async(self.client, deploying(MODULE, folder))

    enqueue = awaiting(QueueCore.enqueue)
    enqueue_many = awaiting(QueueCore.enqueue_many)
    claim = awaiting(QueueCore.claim)
    complete = awaiting(QueueCore.complete)
    extend = awaiting(QueueCore.extend)
    release = awaiting(QueueCore.release)
    cancel = awaiting(QueueCore.cancel)
    peek = awaiting(QueueCore.peek)
    depth = awaiting(QueueCore.depth)
    dead = awaiting(QueueCore.dead)
    redrive = awaiting(QueueCore.redrive)
    settle = awaiting(QueueCore.settle)

    async def complete_in(self, view: AsyncView, claim: Claim) -> None:
        """Remove an item that is done, in a function under `run`; see `Queue.complete_in`."""
        await _InAsyncView(view, self.core).complete(claim)


class _InView:
    def __init__(self, view: View, core: QueueCore) -> None:
        self.view, self.core = view, core

    complete = within(QueueCore.complete_in)


class _InAsyncView:
    def __init__(self, view: AsyncView, core: QueueCore) -> None:
        self.view, self.core = view, core

    complete = within_async(QueueCore.complete_in)
