"""The exchange: what tasks that run at the same time give each other, through files.

Between two of Spark's stages pass some ten milliseconds, whatever goes from one to the other. Where
the tasks of all shards run at the same time on one machine, they need no second stage: each writes
what the others get, and waits for what it gets itself.

The files lie beside those of the `spool`, one for each task and kind, and appear as a whole. A task
that is tried again finds what the others have given, and gives once more what it gave before.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from time import sleep
from typing import Final

import msgspec
from pyspark import TaskContext

from streamydb.pipeline.spool import Spool, SpoolError

__all__ = ["Exchange", "task_number"]

_LOOK_S: Final = (0.0002, 0.002)
"""How long a task that waits sleeps between two looks, at first and at last."""

_decode_given = msgspec.msgpack.Decoder(list[tuple[int, bytes]]).decode


class Exchange:
    """What the tasks of one stage give each other in one micro-batch."""

    def __init__(self, spool: Spool) -> None:
        """Of the micro-batch of which this is a task, in the folder of ``spool``.

        Raises:
            SpoolError: the folder cannot be made.
        """
        self._folder = spool.of_batch()
        self._parent = os.getppid()

    def give(self, kind: str, number: int, blocks: Iterable[tuple[int, bytes]]) -> None:
        """Give blocks of a kind, all at once: (to which task, block).

        ``number``: of the task that gives. A task that gives something of a kind again gives the
        same.

        Raises:
            SpoolError: the file cannot be written.
        """
        path = self._path(kind, number)
        made = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
        try:
            made.write_bytes(msgspec.msgpack.encode(list(blocks)))
            made.replace(path)
        except OSError as error:
            raise SpoolError(f"what a task gives to others cannot be written: {error}") from error

    def take(self, kind: str, givers: Iterable[int], number: int) -> Iterator[bytes]:
        """Wait until each of the givers has given; yield what they gave to task ``number``.

        Raises:
            SpoolError: the query has been stopped meanwhile, or a file cannot be read.
        """
        for giver in givers:
            for dest, block in _decode_given(self._given(self._path(kind, giver))):
                if dest == number:
                    yield block

    def _path(self, kind: str, number: int) -> Path:
        return self._folder / f"{kind}-{number}"

    def _given(self, path: Path) -> bytes:
        pause, longest = _LOOK_S
        while True:
            try:
                return path.read_bytes()
            except FileNotFoundError:
                self._require_query()
            except OSError as error:
                raise SpoolError(f"what a task was given cannot be read: {error}") from error
            sleep(pause)
            pause = min(longest, pause * 1.05)

    def _require_query(self) -> None:
        """Refuse to wait for ever: a query that ends leaves its waiting tasks to themselves.

        The next start of the query removes the folder; when Spark has ended, this process has
        another parent.
        """
        if not self._folder.is_dir():
            raise SpoolError(f"the query has ended: {self._folder} is gone")
        if os.getppid() != self._parent:
            raise SpoolError("Spark has ended")


def task_number() -> int:
    """Which of the tasks of its stage this is; the state of shard n is in task n."""
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()
