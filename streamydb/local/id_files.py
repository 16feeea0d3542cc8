"""Tables of the ids of a shard as memory-mapped files; see `shard_files`."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streamydb.frames.program import ENTRY


def mapped_tables(folder: Path, names: Sequence[str]) -> list[npt.NDArray[Any]] | None:
    """Map tables of ids of a shard to be read beside it; None if one is not there (any more)."""
    try:
        paths = [folder / "ids" / f"{name}.table" for name in names]
        return [np.asarray(np.memmap(path, ENTRY, "r")) for path in paths]
    except FileNotFoundError:
        return None


class FileIdTables:
    """Tables of ids as memory-mapped files (`streamydb.key_processor.id_rows.IdTables`).

    They are changed in place, so they belong to one worker at a time: whoever comes while another
    one has them makes its own in memory, from the state. Nobody waits: the other one may be the
    worker of a batch that was given up, and may never end. A process keeps its mappings from batch
    to batch: a new one would fault every page in again.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "ids"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._own: dict[str, npt.NDArray[Any]] | None = None
        self._lock = (self._folder / "lock").open("wb")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._own = {}

    @property
    def shared(self) -> bool:
        """True if these are the tables in the folder."""
        return self._own is None

    def close(self) -> None:
        """Leave the tables to the next worker; this one must not touch them any more."""
        self._lock.close()
        self._own = {}

    def get(self, name: str) -> npt.NDArray[Any] | None:
        if self._own is not None:
            return self._own.get(name)
        path = self._path(name)
        try:
            inode = path.stat().st_ino
        except FileNotFoundError:
            _MAPPED.pop(path, None)
            return None
        known = _MAPPED.get(path)
        if known is None or known[0] != inode:
            known = _MAPPED[path] = (inode, np.asarray(np.memmap(path, ENTRY, "r+")))
        return known[1]

    def create(
        self, name: str, capacity: int, fill: Callable[[npt.NDArray[Any]], None]
    ) -> npt.NDArray[Any]:
        """A new table of ``capacity`` + 1 rows, zeroed and then filled, in place of an old one."""
        if self._own is not None:
            table = self._own[name] = np.zeros(capacity + 1, ENTRY)
            fill(table)
            return table
        path = self._path(name)
        fresh = path.with_suffix(".new")
        with fresh.open("wb") as file:
            file.truncate((capacity + 1) * ENTRY.itemsize)
        table = np.asarray(np.memmap(fresh, ENTRY, "r+"))
        fill(table)
        fresh.replace(path)
        _MAPPED[path] = (path.stat().st_ino, table)
        return table

    def names(self) -> list[str]:
        """The tables that there are; mappings of others are given up."""
        if self._own is not None:
            return [*self._own]
        there = set(self._folder.glob("*.table"))
        for path in [p for p in _MAPPED if p.parent == self._folder and p not in there]:
            del _MAPPED[path]
        return [path.stem for path in there]

    def drop(self, name: str) -> None:
        if self._own is not None:
            self._own.pop(name, None)
            return
        path = self._path(name)
        _MAPPED.pop(path, None)
        with suppress(FileNotFoundError):
            path.unlink()

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.table"


_MAPPED: dict[Path, tuple[int, npt.NDArray[Any]]] = {}
"""Mapped tables of this process by path, with the inode."""
