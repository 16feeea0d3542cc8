"""The spool: large blocks lie in files while they go from task to task on one machine.

Spark copies a block some ten times between two Python functions, and what all shards get it copies
for each of them. So where all tasks run on one machine, a large block is written to a file, and
Spark moves a reference to it. A part that several blocks share is written once.

The files are of one start of the query, and of one micro-batch. When that is repeated, they are
made again; so they are a cache, which nobody syncs and no later micro-batch reads.
"""

from __future__ import annotations

import os
import shutil
import sys
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import Final, Self

import msgspec
from pyspark import TaskContext

from streamydb.errors import StreamyError
from streamydb.frames.encoding import Part
from streamydb.local.file_lock import write_whole

_LEAST_BYTES: Final = 1 << 16
"""A block of fewer bytes Spark copies in less time than it takes to make a file."""

_MAGIC: Final = b"SDBF"  # a reference begins with it, and no block does
_BATCH: Final = "streaming.sql.batchId"
"""The name under which Spark tells each task the number of its micro-batch."""

_Extent = tuple[int, int]  # where a part of a block lies in the file, and its length; both in bytes
_decode_reference = msgspec.msgpack.Decoder(tuple[str, list[_Extent]]).decode


class SpoolError(StreamyError):
    """A block is not in its file any more; its micro-batch must be repeated."""


@dataclass(frozen=True, slots=True)
class Spool:
    """The files of one start of the query.

    Attributes:
        folder: where they lie; None: Spark moves all blocks.
        least: Spark moves blocks of fewer bytes.
    """

    folder: Path | None = None
    least: int = _LEAST_BYTES

    def writer(self) -> SpoolWriter:
        """Write blocks of one task; a context."""
        return SpoolWriter(self.folder, self.least)

    def read(self, block: bytes) -> bytes:
        """Return the block that a reference names, and any other block as it is.
        Raises SpoolError: the file is gone, or shorter than it was.
        """
        if self.folder is None or block[:4] != _MAGIC:
            return block
        name, extents = _decode_reference(block[4:])
        try:
            with (self.folder / name).open("rb", buffering=0) as file:
                parts = [os.pread(file.fileno(), length, at) for at, length in extents]
        except OSError as error:
            raise SpoolError(f"a block between two tasks cannot be read: {error}") from error
        if any(len(part) != length for part, (_, length) in zip(parts, extents, strict=True)):
            raise SpoolError(f"a block between two tasks is cut off: {self.folder / name}")
        return b"".join(parts)

    def of_batch(self) -> Path:
        """The folder of the micro-batch of which this is a task.
        Raises SpoolError: there is none, and it cannot be made.
        """
        batch = _batch()
        if self.folder is None or batch is None:
            raise SpoolError("this is no task of a query on one machine")
        path = self.folder / str(batch)
        try:
            path.mkdir(0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise SpoolError(f"the folder between tasks cannot be made: {error}") from error
        return path

    def forget_earlier(self) -> None:
        """Remove the files of earlier micro-batches, whose tasks have all ended; in a task."""
        now = _batch()
        if self.folder is None or now is None:
            return
        with suppress(FileNotFoundError):
            for path in self.folder.iterdir():
                if int(path.name) < now:
                    shutil.rmtree(path, ignore_errors=True)


NO_SPOOL: Final = Spool()  # Spark moves all blocks: its tasks may run on several machines


class SpoolWriter:
    """The large blocks of one task, in one file, which is made for the first of them."""

    def __init__(self, folder: Path | None, least: int) -> None:
        self._folder = None if _batch() is None else folder
        self._least = least
        self._name = ""
        self._file = -1
        self._end = 0
        self._last: dict[int, tuple[Part, int]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._file >= 0:
            os.close(self._file)

    def put(self, parts: Sequence[Part]) -> bytes:
        """Return what Spark is to move for a block of these parts: a reference, or the block.

        A part that the block before had, too (the same object), is not written again. When a file
        cannot be written, because the disk is full, say, Spark moves this block and all others.
        """
        if self._folder is not None and sum(map(len, parts)) >= self._least:
            try:
                if self._file < 0:
                    self._name = f"{_batch()}/{uuid.uuid4().hex}"
                    path = self._folder / self._name
                    path.parent.mkdir(0o700, parents=True, exist_ok=True)
                    self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                return _MAGIC + msgspec.msgpack.encode((self._name, self._written(parts)))
            except OSError:
                self._folder = None
        return b"".join(parts)

    def _written(self, parts: Sequence[Part]) -> list[_Extent]:
        """Write what is new; return where the parts lie, neighbours as one."""
        last, self._last = self._last, {}
        extents: list[_Extent] = []
        for part in parts:
            known = last.get(id(part))
            at = self._appended(part) if known is None else known[1]
            self._last[id(part)] = part, at
            if extents and sum(extents[-1]) == at:
                at, length = extents.pop()
                extents.append((at, length + len(part)))
            else:
                extents.append((at, len(part)))
        return extents

    def _appended(self, part: Part) -> int:
        at, rest = self._end, memoryview(part)
        while rest:
            rest = rest[os.write(self._file, rest) :]
        self._end += len(part)
        return at


def _batch() -> int | None:
    """The number of the micro-batch of which this is a task; None outside of one."""
    context = TaskContext.get()
    batch_id = None if context is None else context.getLocalProperty(_BATCH)
    return None if batch_id is None else int(batch_id)


_LOOK_S: Final = (0.0002, 0.002)
"""How long a task that waits sleeps between two looks, at first and at last."""

_SAY_S: Final = 10.0
"""How long a task sleeps in all before it says what it waits for; then twice as long, and so on."""


class TaskBlocks(msgspec.Struct, array_like=True):
    """All that a task gives to the others.

    Attributes:
        blocks: for which task each is, and the block.
        transactions: of the plan in which they are grants; 0: this task knows of none.
    """

    blocks: list[tuple[int, bytes]]
    transactions: int = 0

    def to(self, number: int) -> list[bytes]:
        return [block for dest, block in self.blocks if dest == number]


_decode = msgspec.msgpack.Decoder(TaskBlocks).decode


class BlockExchange:
    """The files through which the tasks of one stage give each other blocks, in one micro-batch."""

    def __init__(self, spool: Spool) -> None:
        """Of the micro-batch of which this is a task, in the folder of ``spool``.
        Raises SpoolError: the folder cannot be made.
        """
        self._folder = spool.of_batch()
        self._parent = os.getppid()

    def give(self, kind: str, number: int, blocks: TaskBlocks) -> None:
        """Give what there is of a kind, all at once; ``number``: of the task that gives.

        A task that gives something of a kind again gives the same.
        Raises SpoolError: the file cannot be written.
        """
        try:
            write_whole(self._path(kind, number), msgspec.msgpack.encode(blocks), synced=False)
        except OSError as error:
            raise SpoolError(f"what a task gives to others cannot be written: {error}") from error

    def take(self, kind: str, giver: int) -> TaskBlocks:
        """Wait until a task has given; return what it gave to all.
        Raises SpoolError: the query has been stopped meanwhile, or the file cannot be read.
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
                line = f"task {task_number()} still waits for {path.name} of another task ({path})"
                with suppress(OSError, ValueError, AttributeError):  # full, closed, none
                    sys.stderr.write(f"streamydb exchange: {line}\n")
                    sys.stderr.flush()
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


def task_number() -> int:
    """Return the number of this task in its stage; the state of shard n is in task n."""
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()
