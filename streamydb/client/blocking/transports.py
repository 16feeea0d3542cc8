"""Methods for threads from those for coroutines, and a transport for each process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from streamydb.client.awaiting.transports import AsyncOwnedTransport
from streamydb.client.core import drive as drive_async
from streamydb.client.forks import Owned

_P = ParamSpec("_P")
_R = TypeVar("_R")
_S = TypeVar("_S")
_T = TypeVar("_T")
_MESSAGE: Final = "A transport for threads waits for an event loop."


def complete(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine that waits for no event loop, and return its result."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        value: _T = end.value
        return value
    coroutine.close()
    raise AssertionError(_MESSAGE)


def blocking(
    method: Callable[Concatenate[_S, _P], Coroutine[Any, Any, _T]],
) -> Callable[Concatenate[Any, _P], _T]:
    """Return the method for threads of one for coroutines, which is called with `_awaiting`."""

    @wraps(method)
    def call(self: Any, /, *args: _P.args, **named: _P.kwargs) -> _T:
        return complete(method(self._awaiting, *args, **named))

    return call


def blocking_items(
    method: Callable[Concatenate[_S, _P], AsyncIterator[_T]],
) -> Callable[Concatenate[Any, _P], Iterator[_T]]:
    """Return the generator for threads of one for coroutines; see `blocking`."""

    @wraps(method)
    def call(self: Any, /, *args: _P.args, **named: _P.kwargs) -> Iterator[_T]:
        items: Any = method(self._awaiting, *args, **named)
        more = items.__anext__
        try:
            while True:
                yield complete(more())
        except StopAsyncIteration:
            return
        finally:
            complete(items.aclose())

    return call


def wrapping(
    method: Callable[Concatenate[_S, _P], _R], wrapper: Callable[[_R], _T]
) -> Callable[Concatenate[Any, _P], _T]:
    """Return a method that puts a wrapper around what `method` returns; see `blocking`."""

    @wraps(method)
    def call(self: Any, /, *args: _P.args, **named: _P.kwargs) -> _T:
        return wrapper(method(self._awaiting, *args, **named))

    return call


def drive(flow: Generator[_R, Any, _T], perform: Callable[[_R], Any]) -> _T:
    """Run a flow to its end with the answers that `perform` returns."""

    async def performed(request: _R) -> Any:
        return perform(request)

    return complete(drive_async(flow, performed))


class OwnedTransport(AsyncOwnedTransport):
    """A transport for each process that uses it, for threads."""

    kind = Owned
