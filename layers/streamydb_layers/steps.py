"""Write a layer once for both clients: flows of steps.

A *flow* is a generator that yields steps and is sent what the client answered; a *body* is one that
yields lists of keys and is sent their values, inside a function under `run`. Drivers perform them
(`drivers`). Steps use the public methods of the clients and nothing else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

from streamydb.client import (
    AsyncClient,
    AsyncView,
    Builder,
    Client,
    Committed,
    Consistency,
    Entry,
    Session,
    Snapshot,
    View,
)

_T = TypeVar("_T")

Build: TypeAlias = Callable[[Builder], object]
"""Adds to a transaction that is being put together."""


class Step(Protocol):
    """One thing that a client does."""

    def perform(self, client: Client) -> Any:
        """Do it."""

    async def perform_async(self, client: AsyncClient) -> Any:
        """Do it, awaiting."""


Flow: TypeAlias = Generator[Step, Any, _T]
Body: TypeAlias = Generator[list[str], dict[str, Any], _T]


class AttemptView(Protocol):
    """The part of a view that a body calls; it yields the keys that it reads."""

    def put(self, key: str, value: Any) -> None:
        """Store a value."""

    def delete(self, key: str) -> None:
        """Remove a key."""


@dataclass(frozen=True, slots=True)
class ReadStep:
    """Read keys at one snapshot."""

    keys: list[str]
    at: int | None
    consistency: Consistency | None

    def perform(self, client: Client) -> Snapshot:
        """Do it."""
        return client.read(self.keys, at=self.at, consistency=self.consistency)

    async def perform_async(self, client: AsyncClient) -> Snapshot:
        """Do it, awaiting."""
        return await client.read(self.keys, at=self.at, consistency=self.consistency)


@dataclass(frozen=True, slots=True)
class ScanStep:
    """Read a range of keys at a seq, in the order of the keys."""

    prefix: str
    at: int
    start: str | None
    end: str | None
    limit: int | None

    def perform(self, client: Client) -> list[Entry]:
        """Do it."""
        return list(
            client.scan(self.prefix, start=self.start, end=self.end, limit=self.limit, at=self.at)
        )

    async def perform_async(self, client: AsyncClient) -> list[Entry]:
        """Do it, awaiting."""
        found = client.scan(
            self.prefix, start=self.start, end=self.end, limit=self.limit, at=self.at
        )
        return [entry async for entry in found]


@dataclass(frozen=True, slots=True)
class Commit:
    """Put a transaction together and commit it."""

    build: Build

    def perform(self, client: Client) -> Committed:
        """Do it."""
        atomic = client.atomic()
        self.build(atomic)
        return atomic.commit()

    async def perform_async(self, client: AsyncClient) -> Committed:
        """Do it, awaiting."""
        atomic = client.atomic()
        self.build(atomic)
        return await atomic.commit()


@dataclass(frozen=True, slots=True)
class CallStep:
    """Call a stored procedure on given keys."""

    procedure: str
    args: Mapping[str, Any]
    keys: list[str]

    def perform(self, client: Client) -> Committed:
        """Do it."""
        return client.call(self.procedure, self.args, keys=self.keys)

    async def perform_async(self, client: AsyncClient) -> Committed:
        """Do it, awaiting."""
        return await client.call(self.procedure, self.args, keys=self.keys)


@dataclass(frozen=True, slots=True)
class DeployStep:
    """Make a version of a module current."""

    record: Mapping[str, Any]

    def perform(self, client: Client) -> Committed:
        """Do it."""
        return client.transaction(deploy=self.record)

    async def perform_async(self, client: AsyncClient) -> Committed:
        """Do it, awaiting."""
        return await client.transaction(deploy=self.record)


@dataclass(frozen=True, slots=True)
class RunStep:
    """Execute a body as a transaction, again after a conflict."""

    body: Callable[[AttemptView], Body[Any]]
    conflicts_max: int | None

    def perform(self, client: Client) -> Any:
        """Do it."""
        return client.run(
            lambda view: in_view(view, self.body(view)), conflicts_max=self.conflicts_max
        )

    async def perform_async(self, client: AsyncClient) -> Any:
        """Do it, awaiting."""

        async def function(view: AsyncView) -> Any:
            return await in_view_async(view, self.body(view))

        return await client.run(function, conflicts_max=self.conflicts_max)


@dataclass(frozen=True, slots=True)
class PauseStep:
    """Wait before the next attempt, longer after each, by chance (as the clients do)."""

    attempt: int

    def seconds(self, session: Session) -> float:
        """Return how long: exponential, with full jitter."""
        options = session.options
        mean = min(options.backoff_max_s, options.backoff_s * 2.0 ** min(self.attempt, 30))
        return 2 * mean * session.random()

    def perform(self, client: Client) -> None:
        """Do it."""
        time.sleep(self.seconds(client.session))

    async def perform_async(self, client: AsyncClient) -> None:
        """Do it, awaiting."""
        await asyncio.sleep(self.seconds(client.session))


def read(
    keys: Iterable[str], *, at: int | None = None, consistency: Consistency | None = None
) -> Flow[Snapshot]:
    """Read keys at one snapshot."""
    answer: Snapshot = yield ReadStep(list(keys), at, consistency)
    return answer


def scan(
    prefix: str,
    at: int,
    *,
    start: str | None = None,
    end: str | None = None,
    limit: int | None = None,
) -> Flow[list[Entry]]:
    """Read a range of keys at a seq."""
    answer: list[Entry] = yield ScanStep(prefix, at, start, end, limit)
    return answer


def commit(build: Build) -> Flow[Committed]:
    """Commit what ``build`` puts together."""
    answer: Committed = yield Commit(build)
    return answer


def call(procedure: str, args: Mapping[str, Any], keys: Iterable[str]) -> Flow[Committed]:
    """Call a stored procedure on given keys."""
    answer: Committed = yield CallStep(procedure, args, list(dict.fromkeys(keys)))
    return answer


def commit_deploy(record: Mapping[str, Any]) -> Flow[Committed]:
    """Make a version of a module current."""
    answer: Committed = yield DeployStep(record)
    return answer


def run(body: Callable[[AttemptView], Body[_T]], conflicts_max: int | None = None) -> Flow[_T]:
    """Execute a body as a transaction, so often at most; by default as the client has it."""
    answer: _T = yield RunStep(body, conflicts_max)
    return answer


def pause(attempt: int) -> Flow[None]:
    """Wait before the next attempt; the first one has the number 0."""
    yield PauseStep(attempt)


def in_view(view: View, body: Body[_T]) -> _T:
    """Run a body to its end on a view."""
    try:
        keys = next(body)
        while True:
            keys = body.send(view.read(keys))
    except StopIteration as end:
        value: _T = end.value
        return value


async def in_view_async(view: AsyncView, body: Body[_T]) -> _T:
    """Run a body to its end on a view for coroutines."""
    try:
        keys = next(body)
        while True:
            keys = body.send(await view.read(keys))
    except StopIteration as end:
        value: _T = end.value
        return value
