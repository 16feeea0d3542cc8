"""Perform flows and bodies of a layer (see `steps`) on either client; make methods of them.

`blocking` and `awaiting` make a method of either client of a flow, `within` and `within_async` one
of a body.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from streamydb.client import AsyncClient, AsyncView, Client, View
from streamydb.client import drive as drive_blocking
from streamydb.client import drive_async as drive_awaiting
from streamydb_layers.steps import AttemptView, Body, Flow, in_view, in_view_async, run

_T = TypeVar("_T")
_P = ParamSpec("_P")


def drive(client: Client, flow: Flow[_T]) -> _T:
    """Run a flow to its end on a blocking client."""
    return drive_blocking(flow, lambda step: step.perform(client))


async def drive_async(client: AsyncClient, flow: Flow[_T]) -> _T:
    """Run a flow to its end on a client for coroutines."""
    return await drive_awaiting(flow, lambda step: step.perform_async(client))


class _OfClient(Protocol):
    client: Client
    core: Any


class _OfAsyncClient(Protocol):
    client: AsyncClient
    core: Any


class _OfView(Protocol):
    view: View
    core: Any


class _OfAsyncView(Protocol):
    view: AsyncView
    core: Any


def blocking(
    method: Callable[Concatenate[Any, _P], Flow[_T]],
) -> Callable[Concatenate[_OfClient, _P], _T]:
    """Make a method that blocks of a core's method."""

    @wraps(method)
    def made(self: _OfClient, /, *args: _P.args, **named: _P.kwargs) -> _T:
        return drive(self.client, method(self.core, *args, **named))

    return made


def awaiting(
    method: Callable[Concatenate[Any, _P], Flow[_T]],
) -> Callable[Concatenate[_OfAsyncClient, _P], Awaitable[_T]]:
    """Make a coroutine method of a core's method."""

    @wraps(method)
    async def made(self: _OfAsyncClient, /, *args: _P.args, **named: _P.kwargs) -> _T:
        return await drive_async(self.client, method(self.core, *args, **named))

    return made


def running(
    method: Callable[Concatenate[Any, _P], Callable[[AttemptView], Body[_T]]],
) -> Callable[Concatenate[_OfClient, _P], _T]:
    """Make a method that blocks of a core's method that returns a body."""

    @wraps(method)
    def made(self: _OfClient, /, *args: _P.args, **named: _P.kwargs) -> _T:
        return drive(self.client, run(method(self.core, *args, **named)))

    return made


def running_async(
    method: Callable[Concatenate[Any, _P], Callable[[AttemptView], Body[_T]]],
) -> Callable[Concatenate[_OfAsyncClient, _P], Awaitable[_T]]:
    """Make a coroutine method of a core's method that returns a body."""

    @wraps(method)
    async def made(self: _OfAsyncClient, /, *args: _P.args, **named: _P.kwargs) -> _T:
        return await drive_async(self.client, run(method(self.core, *args, **named)))

    return made


def within(
    method: Callable[Concatenate[Any, _P], Callable[[AttemptView], Body[_T]]],
) -> Callable[Concatenate[_OfView, _P], _T]:
    """Make a method that acts in a view of a core's method that returns a body."""

    @wraps(method)
    def made(self: _OfView, /, *args: _P.args, **named: _P.kwargs) -> _T:
        return in_view(self.view, method(self.core, *args, **named)(self.view))

    return made


def within_async(
    method: Callable[Concatenate[Any, _P], Callable[[AttemptView], Body[_T]]],
) -> Callable[Concatenate[_OfAsyncView, _P], Awaitable[_T]]:
    """Make a coroutine method that acts in a view of a core's method that returns a body."""

    @wraps(method)
    async def made(self: _OfAsyncView, /, *args: _P.args, **named: _P.kwargs) -> _T:
        return await in_view_async(self.view, method(self.core, *args, **named)(self.view))

    return made
