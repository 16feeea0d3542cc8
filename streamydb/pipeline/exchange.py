"""The exchange: what tasks that run at the same time give each other, through files.

Between two of Spark's stages pass some ten milliseconds, whatever goes from one to the other. Where
the tasks of all shards run at the same time on one machine, they need no second stage: each writes
what the others get, and waits for what it gets itself.

The files lie beside those of the `spool`, one for each task and kind, and appear as a whole. A task
that is tried again finds what the others have given, and gives once more what it gave before.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from time import sleep
from typing import Final

import msgspec
from pyspark import TaskContext

from streamydb.local.file_lock import write_whole
from streamydb.pipeline.spool import Spool, SpoolError

_LOOK_S: Final = (0.0002, 0.002)
"""How long a task that waits sleeps between two looks, at first and at last."""

_SAY_S: Final = 10.0
"""How long a task sleeps in all before it says what it waits for; then twice as long, and so on."""


class Given(msgspec.Struct, array_like=True):
    """All that a task gives to the others.

    Attributes:
        blocks: for which task each is, and the block.
        transactions: of the plan in which they are grants; 0: this task knows of none.
    """

    blocks: list[tuple[int, bytes]]
    transactions: int = 0

    def to(self, number: int) -> list[bytes]:
        """Return the blocks for a task."""
        return [block for dest, block in self.blocks if dest == number]


_decode = msgspec.msgpack.Decoder(Given).decode


class Exchange:
    """The files through which the tasks of one stage give each other blocks, in one micro-batch."""

    def __init__(self, spool: Spool) -> None:
        """Of the micro-batch of which this is a task, in the folder of ``spool``.

        Raises:
            SpoolError: the folder cannot be made.
        """
        self._folder = spool.of_batch()
        self._parent = os.getppid()

    def give(self, kind: str, number: int, given: Given) -> None:
        """Give what there is of a kind, all at once; ``number``: of the task that gives.

        A task that gives something of a kind again gives the same.

        Raises:
            SpoolError: the file cannot be written.
        """
        try:
            write_whole(self._path(kind, number), msgspec.msgpack.encode(given), synced=False)
        except OSError as error:
            raise SpoolError(f"what a task gives to others cannot be written: {error}") from error

    def take(self, kind: str, giver: int) -> Given:
        """Wait until a task has given; return what it gave to all.

        Raises:
            SpoolError: the query has been stopped meanwhile, or the file cannot be read.
        """
        return _decode(self._given(self._path(kind, giver)))

    def _path(self, kind: str, number: int) -> Path:
        return self._folder / f"{kind}-{number}"

    def _given(self, path: Path) -> bytes:
        pause, longest = _LOOK_S
        slept_s, say_s = 0.0, _SAY_S
        while True:
            try:
                return path.read_bytes()
            except FileNotFoundError:
                self._require_query()
            except OSError as error:
                raise SpoolError(f"what a task was given cannot be read: {error}") from error
            sleep(pause)
            slept_s += pause
            pause = min(longest, pause * 1.05)
            if slept_s >= say_s:
                _say(f"task {task_number()} still waits for {path.name} of another task ({path})")
                say_s *= 2

    def _require_query(self) -> None:
        """Refuse to wait for ever: a query that ends leaves its waiting tasks to themselves.

        The next start of the query removes the folder; when Spark has ended, this process has
        another parent.
        """
        if not self._folder.is_dir():
            raise SpoolError(f"the query has ended: {self._folder} is gone")
        if os.getppid() != self._parent:
            raise SpoolError("Spark has ended")


def _say(line: str) -> None:
    """Write a line into the log of Spark's workers, if there is one that takes it."""
    with suppress(OSError, ValueError, AttributeError):  # full, closed, none
        sys.stderr.write(f"streamydb exchange: {line}\n")
        sys.stderr.flush()


def task_number() -> int:
    """Return the number of this task in its stage; the state of shard n is in task n."""
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()
