"""The driver: runs a flow to its end, with answers from whatever performs its requests.

A flow is a generator that yields requests, of whatever kind, and is sent the answers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeAlias, TypeVar

from streamydb.client.requests import Request

_R = TypeVar("_R")
_T = TypeVar("_T")
Perform: TypeAlias = Callable[[Request[Any]], Awaitable[Any]]


async def drive(flow: Generator[_R, Any, _T], perform: Callable[[_R], Awaitable[Any]]) -> _T:
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
