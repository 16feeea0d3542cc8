"""Drivers: they run a flow to its end, with answers from whatever performs its requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar

from streamydb.client.requests import Flow, Request

__all__ = ["Perform", "PerformAsync", "drive", "drive_async"]

_T = TypeVar("_T")
Perform: TypeAlias = Callable[[Request[Any]], Any]
PerformAsync: TypeAlias = Callable[[Request[Any]], Awaitable[Any]]


def drive(flow: Flow[_T], perform: Perform) -> _T:
    """Run a flow to its end."""
    try:
        request = next(flow)
        while True:
            try:
                answer = perform(request)
            except Exception as error:  # noqa: BLE001 - the flow decides what it means
                request = flow.throw(error)
            else:
                request = flow.send(answer)
    except StopIteration as end:
        value: _T = end.value
        return value
    finally:
        flow.close()


async def drive_async(flow: Flow[_T], perform: PerformAsync) -> _T:
    """Run a flow to its end."""
    try:
        request = next(flow)
        while True:
            try:
                answer = await perform(request)
            except Exception as error:  # noqa: BLE001 - the flow decides what it means
                request = flow.throw(error)
            else:
                request = flow.send(answer)
    except StopIteration as end:
        value: _T = end.value
        return value
    finally:
        flow.close()
