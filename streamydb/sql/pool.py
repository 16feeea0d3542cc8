"""Run queries of strangers, each in a process of its own that is killed when its time is over.

One process is kept ready, so that a query does not wait for Python to start. The processes get an
environment without any of this one's settings.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from streamydb.records.formats import UNREADABLE
from streamydb.sql.child import HEAD_BYTES, READY, frame, size_of

if TYPE_CHECKING:
    from streamydb.sql.worker import Job, QueryOutcome


_KEPT: Final = ("PATH", "LD_LIBRARY_PATH", "SYSTEMROOT", "VIRTUAL_ENV")
_OUTPUT_MARGIN_BYTES: Final = 65_536
_START_S: Final = 60.0


def is_installed() -> bool:
    return importlib.util.find_spec("duckdb") is not None


class Spare:
    """A process of a module that is started and ready, and the next one."""

    ahead: ClassVar[bool] = True
    """Make the next process when one is taken; who takes one and ends need not pay for two."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._spare: asyncio.Task[Process] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def take(self) -> Process:
        """Return the process that is ready, and have the next one made."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # what another loop made ends with that loop
            self._loop, self._spare = loop, None
        spare = self._usable() or asyncio.create_task(_start(self._module))
        self._spare = asyncio.create_task(_start(self._module)) if self.ahead else None
        try:
            return await asyncio.shield(spare)
        except asyncio.CancelledError:  # it may be ready in this moment, and is nobody's then
            await asyncio.shield(_drop_spare(spare))
            raise

    def _usable(self) -> asyncio.Task[Process] | None:
        """Return the process that is, or will be, ready; None: it has ended, or did not start."""
        spare = self._spare
        if spare is None or not spare.done():
            return spare
        failed = spare.cancelled() or spare.exception() is not None
        return None if failed or spare.result().returncode is not None else spare

    async def close(self) -> None:
        spare, self._spare = self._spare, None
        if spare is None or self._loop is not asyncio.get_running_loop():
            return
        await _drop_spare(spare)


async def _drop_spare(spare: asyncio.Task[Process]) -> None:
    spare.cancel()  # one that is still starting ends itself
    await asyncio.wait([spare])
    if not spare.cancelled() and spare.exception() is None:
        await end(spare.result())


class QueryPool:
    """Processes for queries."""

    def __init__(self) -> None:
        self._spare = Spare("streamydb.sql.process")

    async def run(self, job: Job, timeout_s: float) -> QueryOutcome:
        """Run a job; after so many seconds it is killed: `costly`."""
        from streamydb.sql.worker import QueryOutcome

        process = await self._spare.take()
        try:
            async with asyncio.timeout(timeout_s):
                data = await _exchange(process, msgspec.msgpack.encode(job), job.bytes_max)
        except TimeoutError:
            return QueryOutcome("costly")
        finally:
            await asyncio.shield(end(process))
        if data is None:
            return QueryOutcome("large")
        try:
            return msgspec.json.decode(data, type=QueryOutcome)
        except UNREADABLE:  # it was killed for what it used, or crashed
            return QueryOutcome("costly")

    async def close(self) -> None:
        await self._spare.close()


async def _start(module: str) -> Process:
    """A process that has loaded everything: what follows is the work's own time."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", module,
        stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=_environment(module), start_new_session=True,
    )  # fmt: skip
    try:
        async with asyncio.timeout(_START_S):
            ready = await process.stdout.read(1) if process.stdout else b""
    except BaseException:
        await asyncio.shield(end(process))
        raise
    if ready != READY:
        await asyncio.shield(end(process))
        raise OSError(f"the process {module} did not start: is DuckDB whole?")
    return process


def _environment(module: str) -> dict[str, str]:
    """Return the variables that a process needs to start, and no setting or secret of this one."""
    path = dict.fromkeys(map(_folder, (__name__, module)))
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {
        **kept, "PYTHONPATH": os.pathsep.join(path), "HOME": os.devnull, "LC_ALL": "C.UTF-8",
        "ARROW_DEFAULT_MEMORY_POOL": "system",  # the others reserve a gigabyte at once
    }  # fmt: skip


def _folder(module: str) -> str:
    """Return the folder of a module's package. Raises OSError: it is not installed."""
    name = module.partition(".")[0]
    package = importlib.util.find_spec(name)
    if package is None or package.origin is None:
        raise OSError(f"the package {name} is not installed")
    return str(Path(package.origin).resolve().parents[1])


async def _exchange(process: Process, job: bytes, bytes_max: int) -> bytes | None:
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("the process has no pipes")
    sending = asyncio.create_task(_send(process.stdin, job))
    received = bytearray()
    try:
        while chunk := await process.stdout.read(1 << 16):
            received += chunk
            if len(received) > bytes_max + _OUTPUT_MARGIN_BYTES:
                return None
    finally:
        sending.cancel()
        await asyncio.wait([sending])
    return bytes(received)


async def _send(pipe: asyncio.StreamWriter, job: bytes) -> None:
    try:
        pipe.write(job)
        await pipe.drain()
        pipe.close()
    except ConnectionError:  # it has ended; its output tells
        return


async def end(process: Process) -> None:
    if process.returncode is None:
        # Not `process.kill`: it may take the exit status from under asyncio's own watcher.
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    await process.wait()


_OUTCOME_BYTES_MAX: Final = 67_108_864
"""Bytes of a frame of a process: a transaction's writes and an answer are smaller."""


class TooMuch(Exception):  # noqa: N818 - it is no fault of ours
    """The process took too much time or memory, and has ended."""


class DialoguePool:
    """Processes of one module, which begins with `READY` and then speaks frames.

    A process is given a job, asks any number of questions, and then gives its outcome. It has no
    secrets and no network. It serves one owner only, for job after job; what takes too long is
    killed.
    """

    def __init__(self, module: str, kept_max: int) -> None:
        self._spare = Spare(module)
        self._kept_max = kept_max
        self._kept: list[tuple[str, asyncio.AbstractEventLoop, Process]] = []

    async def run(
        self, owner: str, job: Any, answer: Callable[[Any], Awaitable[Any]], timeout_s: float
    ) -> Any:
        """Have a job of an owner done; return its outcome. ``answer`` answers a question of the
        process: ``["read", …]`` and the like. The outcome is ``["done", …]``, and is not asked.
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
        self._kept.append((owner, asyncio.get_running_loop(), process))
        if len(self._kept) > self._kept_max:
            _, loop, oldest = self._kept.pop(0)
            if loop is asyncio.get_running_loop():
                await asyncio.shield(end(oldest))
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
