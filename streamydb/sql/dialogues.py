"""Have statements of strangers executed in processes that ask this one for what they read.

A process is given a job, asks any number of questions, and then gives its outcome. It has no
secrets and no network (`pool`). It serves one owner only, for job after job; what takes too long
is killed.
"""

from __future__ import annotations

import asyncio
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from streamydb.sql.child import HEAD_BYTES, frame, size_of
from streamydb.sql.pool import Spare, end

_OUTCOME_BYTES_MAX: Final = 67_108_864
"""Bytes of a frame of a process: a transaction's writes and an answer are smaller."""


class TooMuch(Exception):  # noqa: N818 - it is no fault of ours
    """The process took too much time or memory, and has ended."""


class DialoguePool:
    """Processes of one module, which begins with `READY` and then speaks frames."""

    def __init__(self, module: str, kept_max: int) -> None:
        self._spare = Spare(module)
        self._kept_max = kept_max
        self._kept: list[tuple[str, asyncio.AbstractEventLoop, Process]] = []

    async def run(
        self, owner: str, job: Any, answer: Callable[[Any], Awaitable[Any]], timeout_s: float
    ) -> Any:
        """Have a job of an owner done; return its outcome.

        ``answer`` answers a question of the process: ``["read", …]`` and the like. The outcome is
        ``["done", …]``, and is not asked.
        Raises TooMuch: it took too much.
        """
        process = self._of(owner) or await self._spare.take()
        try:
            async with asyncio.timeout(timeout_s):
                outcome = await _converse(process, job, answer)
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
            await asyncio.shield(end(process))
            raise TooMuch from None
        except BaseException:
            await asyncio.shield(end(process))
            raise
        await self._keep(owner, process)
        return outcome

    async def close(self) -> None:
        kept, self._kept = self._kept, []
        for _, loop, process in kept:
            if loop is asyncio.get_running_loop():
                await end(process)
        await self._spare.close()

    def _of(self, owner: str) -> Process | None:
        here = asyncio.get_running_loop()
        for place, (whose, loop, process) in enumerate(self._kept):
            if whose == owner and loop is here and process.returncode is None:
                del self._kept[place]
                return process
        return None

    async def _keep(self, owner: str, process: Process) -> None:
        self._kept.append((owner, asyncio.get_running_loop(), process))
        if len(self._kept) > self._kept_max:
            _, loop, oldest = self._kept.pop(0)
            if loop is asyncio.get_running_loop():
                await asyncio.shield(end(oldest))


async def _converse(process: Process, job: Any, answer: Callable[[Any], Awaitable[Any]]) -> Any:
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("the process has no pipes")
    message = job
    while True:
        process.stdin.write(frame(message))
        await process.stdin.drain()
        size = size_of(await process.stdout.readexactly(HEAD_BYTES))
        if size > _OUTCOME_BYTES_MAX:
            raise TooMuch
        question = msgspec.msgpack.decode(await process.stdout.readexactly(size))
        if question[0] == "done":
            return question[1]
        message = await answer(question)
