"""One LMDB environment per file and process, shared by all who open it; its map grows as needed.

LMDB must not open a file twice in a process, and its map may change its size only while no
transaction of the process is open. So environments are counted, and so are their read transactions:
a change holds new ones back and waits for the open ones to end, and the file stays mapped until its
last user and its last transaction have gone: kernels read it by address, in any thread. A process
that only reads opens the file for reading only; when its follower opens it too, it is opened anew
for both.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import lmdb

from streamydb.frames.addresses import address_of
from streamydb.local.own_process import also_gives, let_go
from streamydb.read_model.errors import StoreBusyError, StoreFailedError, StoreMissingError
from streamydb.read_model.rows import pack_seq

if TYPE_CHECKING:
    from lmdb import _Database

MAP_BYTES: Final = 1 << 38
"""Address space for the file, which is sparse: only what is used takes room. Grows when full."""

READERS_MAX: Final = 1_024  # snapshots that may be open at a time, in all processes together
GROWTHS_MAX: Final = 16  # how often the map may double for one transaction
WAIT_S: Final = 30.0  # how long a change of the map's size waits for open snapshots, in seconds
_FORGOTTEN: Final = 4  # addresses are kept of so many times the parts that there are
_DATA = "data.mdb"
_T = TypeVar("_T")


class Tables(NamedTuple):
    """The sub-databases.

    Attributes:
        about: the store's identity, progress, bounds, and the list of its parts.
        versions: number of a part -> its bytes.
        times: seq -> commit timestamp, of seqs that begin a new one.
    """

    about: _Database
    versions: _Database
    times: _Database


_TABLES: Final = Tables._fields


class Environment:
    """An open file; get it with `open`, give it back with `close`.

    Attributes:
        tables: its sub-databases.
        mapped: number of a part -> its address and length; empty when the file was mapped anew.
        shown: what the last snapshot has seen of the store; None when the file was mapped anew.
    """

    _known: dict[tuple[int, int], Environment] = {}  # noqa: RUF012 - shared by all instances
    _registry = threading.Lock()
    _inherited: dict[tuple[int, int], Environment] = {}  # noqa: RUF012 - shared by all instances

    def __init__(self, folder: Path, map_bytes: int, *, write: bool) -> None:
        self.folder = folder
        self._users = 0
        self._changed = threading.Condition()
        self._open = 0
        self._resizing = False
        self.mapped: dict[int, tuple[int, int]] = {}
        self.shown: Any = None
        self._env, self.tables = _opened(folder, map_bytes, write=write)

    @classmethod
    def open(cls, folder: Path, map_bytes: int = MAP_BYTES, *, write: bool = False) -> Environment:
        """The environment of a folder.

        ``map_bytes``: the address space to begin with; of no effect if it is open already.
        ``write``: open it for writing too, and make what is missing.

        Raises:
            StoreMissingError: there is no store, and ``write`` is false.
            StoreFailedError: the file is not a store.
            StoreBusyError: this process reads it, and its snapshots stay open; or it was forked
                while the parent had one.
        """
        data = folder / _DATA
        with cls._registry:
            if not write and not data.exists():
                raise _missing(folder)
            if data.exists() and _identity(data) in cls._inherited:
                raise _inherited(folder)
            environment = cls._known.get(_identity(data)) if data.exists() else None
            if environment is None:
                environment = cls(folder, map_bytes, write=write)
                cls._known[_identity(data)] = environment
            environment._users += 1
            try:
                if write:
                    environment._make_writable(map_bytes)
            except BaseException:
                environment._give_back()
                raise
            return environment

    @classmethod
    def forget(cls) -> None:
        """Close all, in a child of a fork: they are the parent's, and a process opens a file once.

        One with a transaction stays as it is: to end that would end the parent's, which has the
        same place in the file's table of readers.
        """
        known, cls._known, cls._registry = cls._known, {}, threading.Lock()
        cls._inherited |= {identity: env for identity, env in known.items() if not env.leave()}

    @classmethod
    def let_all_go(cls) -> None:
        """Leave the pages of all files to the system's cache, until they are read again."""
        with cls._registry:
            known = list(cls._known.values())
        for environment in known:
            closed_or_changing = suppress(StoreBusyError, StoreFailedError)
            with closed_or_changing, environment.reading():  # while one reads, it stays mapped
                let_go(environment.folder / _DATA)

    def leave(self) -> bool:
        """Close the file, in a child of a fork, whoever uses it; False if it has a transaction."""
        if self._open:
            return False
        self._users = 0
        self._env.close()
        return True

    def _make_writable(self, map_bytes: int) -> None:
        with self._changed:
            if self._env.flags()["readonly"]:
                with self._alone():
                    self._env.close()
                    self._env, self.tables = _opened(self.folder, map_bytes, write=True)

    def close(self) -> None:
        with self._registry:
            self._give_back()

    def _give_back(self) -> None:
        with self._changed:
            self._users -= 1
        self._close_unused()

    def _close_unused(self) -> None:
        """Close the file unless somebody has it; the registry is held."""
        with self._changed:
            if self._users > 0 or self._open > 0:
                return
            self._env.close()
        for key in [key for key, env in self._known.items() if env is self]:
            del self._known[key]

    def begin(self) -> lmdb.Transaction[memoryview]:
        """A read transaction; give it back with `end`.
        Raises StoreBusyError: the map must change its size, and other transactions stay open.
        Raises StoreFailedError: the file cannot be read, or was given back.
        """
        with self._changed:
            if self._users == 0:
                raise StoreFailedError(f"{self.folder} has been closed")
            if self._resizing and not self._changed.wait_for(lambda: not self._resizing, WAIT_S):
                raise _busy(self.folder)
            try:
                txn = self._begin()
            except lmdb.Error as fault:
                raise StoreFailedError(f"{self.folder} cannot be read: {fault}") from fault
            self._open += 1
            return txn

    def _begin(self) -> lmdb.Transaction[memoryview]:
        try:
            return self._env.begin(buffers=True)
        except lmdb.MapResizedError:
            self._resize(0)
        except lmdb.ReadersFullError:
            self._env.reader_check()
        return self._env.begin(buffers=True)

    def end(self, txn: lmdb.Transaction[memoryview]) -> None:
        txn.abort()
        with self._changed:
            self._open -= 1
            self._changed.notify_all()
            last = self._users == 0 and self._open == 0
        if last:
            with self._registry:
                self._close_unused()

    @contextmanager
    def reading(self) -> Iterator[lmdb.Transaction[memoryview]]:
        txn = self.begin()
        try:
            yield txn
        finally:
            self.end(txn)

    def parts(self, txn: lmdb.Transaction[memoryview], numbers: list[int]) -> list[tuple[int, int]]:
        """Address and length of stored parts, which stay there while the transaction is open.
        Raises StoreFailedError: one of them is missing.
        """
        places_by_number = self.mapped
        for number in numbers:
            if number not in places_by_number:
                data = txn.get(pack_seq(number), db=self.tables.versions)
                if data is None:
                    raise StoreFailedError(
                        f"{self.folder} lacks a part of its data: it is damaged; delete the folder "
                        "and load it again"
                    )
                places_by_number[number] = address_of(data), len(data)
        places = [places_by_number[number] for number in numbers]
        if len(places_by_number) > _FORGOTTEN * len(numbers) + 1_000:
            self.mapped = dict(zip(numbers, places, strict=True))
        return places

    def write(self, work: Callable[[lmdb.Transaction[memoryview]], _T]) -> _T:
        """Run ``work`` in a write transaction and commit; again from the start when the map grows.
        Raises StoreBusyError: the map must grow, and snapshots of this process stay open. Raises
        StoreFailedError: the file cannot be written.
        """
        try:
            for _ in range(GROWTHS_MAX):
                self._env.reader_check()
                try:
                    with self._env.begin(write=True, buffers=True) as txn:
                        return work(txn)
                except lmdb.MapFullError:
                    size = 2 * self._env.info()["map_size"]
                except lmdb.MapResizedError:
                    size = 0
                with self._changed:
                    self._resize(size)
        except lmdb.Error as fault:
            raise StoreFailedError(
                f"{self.folder} cannot be written: {fault}; is the disk full? What was committed "
                "before is whole"
            ) from fault
        raise StoreFailedError(f"{self.folder}: the map was doubled {GROWTHS_MAX} times in vain")

    def copy(self, folder: Path) -> None:
        """Write a consistent copy of the file into an existing folder, free pages left out.
        Raises StoreBusyError: as `begin`. Raises StoreFailedError: it cannot be written.
        """
        with self.reading():
            try:
                self._env.copy(str(folder), compact=True)
            except lmdb.Error as fault:
                raise StoreFailedError(f"{self.folder} cannot be copied: {fault}") from fault

    def _resize(self, size: int) -> None:
        """Change the map's size (0: to what another process made it); `_changed` is held."""
        with self._alone():
            self._env.set_mapsize(size)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        self._resizing = True
        try:
            if not self._changed.wait_for(lambda: self._open == 0, WAIT_S):
                raise _busy(self.folder)
            yield
        finally:
            self.mapped, self.shown = {}, None
            self._resizing = False
            self._changed.notify_all()


also_gives(Environment.let_all_go)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Environment.forget)


def _opened(folder: Path, map_bytes: int, *, write: bool) -> tuple[lmdb.Environment, Tables]:
    """Open a file and its sub-databases; make what is missing if it is to be written.

    A commit syncs what it has written, but not the page that makes it the last one: a power loss
    may undo the last commit, and leaves the file whole. The follower reads its records again.
    """
    try:
        env = lmdb.open(
            str(folder),
            map_size=map_bytes,
            max_dbs=len(_TABLES) + 1,
            max_readers=READERS_MAX,
            readonly=not write,
            create=write,
            metasync=False,
            readahead=False,
        )
        try:
            env.reader_check()
            return env, Tables(*(env.open_db(name.encode(), create=write) for name in _TABLES))
        except BaseException:
            env.close()
            raise
    except lmdb.NotFoundError as fault:
        raise _missing(folder) from fault
    except lmdb.Error as fault:
        raise StoreFailedError(
            f"{folder} cannot be opened as a read model ({fault}); if its file is damaged, "
            "delete the folder and load it again"
        ) from fault


def _identity(data: Path) -> tuple[int, int]:
    status = data.stat()
    return status.st_dev, status.st_ino


def _missing(folder: Path) -> StoreMissingError:
    return StoreMissingError(
        f"there is no read model in {folder}; start its follower: `streamydb read-model "
        f"--database <name> --folder {folder}`"
    )


def _inherited(folder: Path) -> StoreBusyError:
    return StoreBusyError(
        f"{folder}: this process was forked while a snapshot of the store was open, so that it "
        "cannot open the file itself; fork while there is none, or begin a process anew (spawn)"
    )


def _busy(folder: Path) -> StoreBusyError:
    return StoreBusyError(
        f"{folder}: the store must be mapped anew because it has grown, and snapshots of this "
        f"process stayed open for {WAIT_S:.0f} s; close them sooner"
    )
