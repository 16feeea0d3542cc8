"""Find what a child of a fork must not use among all that an object of ours leads to."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
import threading
import types
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Final

import httpx

from streamydb.client.forks import Owned

__all__ = ["foreign", "modules"]

_LOCK: Final = type(threading.Lock())
_FOREIGN: Final = (
    _LOCK, type(threading.RLock()), threading.Event, threading.Condition, threading.Thread,
    socket.socket, asyncio.AbstractEventLoop, httpx.Client, httpx.AsyncClient, httpx.Response,
)  # fmt: skip
_FOREIGN_ROOMS: Final = ("confluent_kafka", "cimpl", "lmdb", "_duckdb", "httpcore")
_SKIPPED: Final = (type, types.ModuleType, types.CodeType, types.FrameType)


def foreign(*roots: object) -> list[str]:
    """Return the ways to sockets, locks, threads, loops and handles;
    the locks of `Owned` are new.
    """
    found: list[str] = []
    seen = {id(root) for root in roots}
    todo = [(root, type(root).__name__) for root in roots]
    while todo:
        thing, way = todo.pop()
        if _is_foreign(thing):
            found.append(way)
            continue
        for part in _parts(thing):
            if id(part) not in seen and not isinstance(part, _SKIPPED):
                seen.add(id(part))
                todo.append((part, f"{way} > {type(part).__name__}"))
    return found


def modules() -> list[object]:
    """The values of all names in the modules of the client and the layers."""
    rooms = ("streamydb.client", "streamydb_layers")
    return [
        value
        for name, module in tuple(sys.modules.items())
        if name.startswith(rooms) and name != Owned.__module__
        for value in tuple(vars(module).values())
        if getattr(type(value), "__module__", "").startswith(rooms) or isinstance(value, _FOREIGN)
    ]


def _is_foreign(thing: object) -> bool:
    room = getattr(type(thing), "__module__", "") or ""
    return isinstance(thing, _FOREIGN) or room.partition(".")[0] in _FOREIGN_ROOMS


def _parts(thing: Any) -> Iterator[object]:
    """What an object refers to, without the whole module of a function."""
    if isinstance(thing, types.FunctionType):
        for cell in thing.__closure__ or ():
            yield cell.cell_contents
    elif isinstance(thing, types.MethodType):
        yield thing.__self__
    elif isinstance(thing, partial):
        yield from (thing.func, *thing.args, *thing.keywords.values())
    else:
        skipped: Iterable[object] = (thing._lock,) if isinstance(thing, Owned) else ()
        kept = {id(each) for each in skipped}
        yield from (each for each in gc.get_referents(thing) if id(each) not in kept)
