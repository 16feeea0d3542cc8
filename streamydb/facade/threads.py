"""Threads in which a coroutine has something done that waits for Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

_T = TypeVar("_T")


class ThreadsEndedError(RuntimeError):
    """There are no threads any more: Python ends those of a program before it ends the program."""


async def run_in(executor: ThreadPoolExecutor, function: Callable[..., _T], *args: Any) -> _T:
    """Run a function that waits for Kafka in a thread.
    Raises ThreadsEndedError: the executor is shut down.
    """
    try:
        work = asyncio.get_running_loop().run_in_executor(executor, function, *args)
    except RuntimeError as error:
        raise ThreadsEndedError(*error.args) from None
    return await work
