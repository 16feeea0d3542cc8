"""Local files of a shard: values in LMDB, tables of ids as memory-mapped arrays.

Both are caches of the state and are never synced to disk. On Linux the folder carries the machine's
boot id, so that after a power loss they begin anew instead of being half there. Elsewhere no boot
id is known: delete the folder after a power loss. A process that dies leaves them whole. A worker
of a batch that was given up may still run beside the worker of the next one: the values' position
is checked and moved in the transaction that reads or writes them, and the tables of ids belong to
one worker at a time.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, partial
from itertools import islice, takewhile
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import lmdb
import numpy as np
import numpy.typing as npt

from streamydb.frames.blobs import KeyScan, Position, end_name, ends_at, first_name, size_of
from streamydb.frames.program import ENTRY

_IN_USE: Final = "in-use"
"""A file in the folder of an incarnation, locked by the pipeline that runs."""

_MAP_BYTES = 1 << 38
_POSITION = b"position"
_BASE = b"base"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_Open = tuple[lmdb.Environment, Any, Any, Any]
_SLOW_S: Final = 1e-5
"""Loading a key from memory takes a tenth of this, and waiting for the disk several times this."""

_THREADS: Final = 16
"""So many load values at a time. Fewer keys than these count as so many: a load of few keys takes
as long as its transaction, whatever the disk does.
"""

_ENVIRONMENTS: dict[str, tuple[int, _Open]] = {}
"""Open LMDB environments of this process by path, with the inode: LMDB allows one per process."""


@cache
def _threads() -> ThreadPoolExecutor:
    """The threads of this process that load values; started when they are needed first."""
    return ThreadPoolExecutor(_THREADS, "streamydb-values")


def shard_folder(root: Path, database: str, incarnation: str, shard: int) -> Path:
    """The folder of a shard's caches on this machine since it was started."""
    boot = _BOOT_ID.read_text(encoding="ascii").strip() if _BOOT_ID.exists() else "no-boot-id"
    started = hashlib.blake2b(boot.encode(), digest_size=6).hexdigest()
    return root / database / incarnation / started / str(shard)


class LmdbValues:
    """A shard's values in an LMDB file (`streamydb.key_processor.value_store.ValueStore`)."""

    alone = False

    def __init__(self, folder: Path) -> None:
        self._env, self._values, self._about, self._ends = _environment(folder)
        self._slow = False

    @staticmethod
    def close(folder: Path) -> None:
        """Close the file in ``folder`` if this process has it open;
        it is opened again when asked.
        """
        known = _ENVIRONMENTS.pop(str(folder / "values"), None)
        if known is not None:
            known[1][0].close()

    def position(self) -> Position:
        """The position committed with the data; (0, "") when new."""
        with self._env.begin(self._about) as txn:
            return self._position(txn)

    def load(self, at: Position, keys: Sequence[bytes]) -> list[bytes | None] | None:
        """The encoded values of keys, None where absent; None when the file is not ``at``.

        A file that is larger than the memory for it makes most keys wait for the disk. Then the
        next ones are loaded by several threads, whose waits overlap.
        """
        begun = perf_counter()
        values = self._load_together(at, keys) if self._slow else self._load(at, keys)
        self._slow = perf_counter() - begun > _SLOW_S * max(len(keys), _THREADS)
        return values

    def _load_together(self, at: Position, keys: Sequence[bytes]) -> list[bytes | None] | None:
        each = max(1, -(-len(keys) // _THREADS))
        parts = [keys[start : start + each] for start in range(0, len(keys), each)]
        whole: list[bytes | None] = []
        for values in _threads().map(partial(self._load, at), parts or [keys]):
            if values is None:
                return None
            whole += values
        return whole

    def _load(self, at: Position, keys: Sequence[bytes]) -> list[bytes | None] | None:
        """Load keys one by one; LMDB lets other threads run while it waits for the disk."""
        with self._env.begin(self._values) as txn:
            if self._position(txn) != at:
                return None
            get = txn.get
            return [get(key) for key in keys]

    def sizes(self, at: Position, keys: Sequence[bytes]) -> list[int] | None:
        """Return how many bytes each encoded value has, -1 where absent; None when not ``at``.

        No value is copied.
        """
        with self._env.begin(self._values, buffers=True) as txn:
            if self._position(txn) != at:
                return None
            values = map(txn.get, keys)
            return [-1 if value is None else size_of(value) for value in values]

    def scan(self, at: Position, wanted: KeyScan) -> list[tuple[bytes, bytes]] | None:
        """The keys in a range with their encoded values; None when the file is not ``at``."""
        with self._env.begin(self._values, buffers=True) as txn:
            if self._position(txn) != at:
                return None
            with txn.cursor() as cursor:
                return wanted.taken(cursor) if cursor.set_range(wanted.start) else []

    def due(self, at: Position, until_ms: int, after: bytes, keys_max: int) -> list[bytes] | None:
        """Return the first names of what ends by ``until_ms``; None when not ``at``."""
        with self._env.begin(self._ends) as txn:
            if self._position(txn) != at:
                return None
            with txn.cursor() as cursor:
                there = cursor.set_range(after + b"\0")
                names = cursor.iternext(keys=True, values=False) if there else iter(())
                behind = first_name(until_ms + 1)
                return list(islice(takewhile(lambda name: name < behind, names), keys_max))

    def apply(
        self,
        expected: Position,
        reached: Position,
        puts: list[tuple[bytes, bytes]],
        deletes: list[bytes],
        ends: Sequence[bytes] = (),
    ) -> bool:
        """Apply writes and move to ``reached``, or False: the file was not at ``expected``."""
        with self._env.begin(self._values, write=True) as txn:
            if self._position(txn) != expected:
                return False
            if txn.stat(self._ends)["entries"]:
                for key in [*(key for key, _ in puts), *deletes]:
                    item = txn.get(key)
                    if item is not None and ends_at(item) is not None:
                        txn.delete(end_name(key, item), db=self._ends)
            if ends:
                txn.cursor(self._ends).putmulti([(name, b"") for name in ends])
            txn.cursor().putmulti(puts)
            for key in deletes:
                txn.delete(key)
            self._move(txn, reached)
        return True

    def clear(self, expected: Position, reached: Position) -> bool:
        """Remove everything and move to ``reached``, or False: it was not at ``expected``."""
        with self._env.begin(write=True) as txn:
            if self._position(txn) != expected:
                return False
            txn.drop(self._values, delete=False)
            txn.drop(self._ends, delete=False)
            self._move(txn, reached)
        return True

    def describe(self, at: Position, base: bytes) -> bool:
        """Keep the base that the values are, or False: the file is not ``at``.

        Whoever reads it sees by its position whether it is of the values that are there.
        """
        with self._env.begin(self._about, write=True) as txn:
            if self._position(txn) != at:
                return False
            txn.put(_BASE, base, db=self._about)
        return True

    def described(self) -> bytes | None:
        """Return the base that was noted last; it may be of values that are there no more."""
        with self._env.begin(self._about) as txn:
            base = txn.get(_BASE, db=self._about)
            return None if base is None else bytes(base)

    def _position(self, txn: lmdb.Transaction) -> Position:
        return _position_in(txn, self._about)

    def _move(self, txn: lmdb.Transaction, position: Position) -> None:
        txn.put(_POSITION, f"{position[0]} {position[1]}".encode(), db=self._about)


class LmdbSnapshot:
    """The values of a shard as they are at one moment, for who reads them beside the shard.

    It belongs to the thread that has made it. As long as it is open, the file keeps the pages that
    were written over since.
    """

    def __init__(self, folder: Path) -> None:
        env, self._values, self._about, self._ends = _environment(folder)
        self._txn = env.begin(self._values)

    @classmethod
    def of(cls, folder: Path) -> LmdbSnapshot | None:
        """Return the values in ``folder``; None if there is no file."""
        return cls(folder) if (folder / "values" / "data.mdb").exists() else None

    def close(self) -> None:
        self._txn.abort()

    def position(self) -> Position:
        """Return the position of the values; (0, "") when new."""
        return _position_in(self._txn, self._about)

    def described(self) -> bytes | None:
        """Return the base that was noted last; it may be of values that are there no more."""
        base = self._txn.get(_BASE, db=self._about)
        return None if base is None else bytes(base)

    def load(self, keys: Sequence[bytes]) -> list[bytes | None]:
        get = self._txn.get
        return [get(key) for key in keys]

    def items(self, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys from ``start`` on with their encoded values, in order."""
        with self._txn.cursor() as cursor:
            if cursor.set_range(start):
                yield from cursor

    def ends(self, after: bytes) -> Iterator[bytes]:
        """Yield the names behind ``after`` of what ends, in order (`frames.blobs.end_name`)."""
        with self._txn.cursor(self._ends) as cursor:
            if cursor.set_range(after + b"\0"):
                yield from cursor.iternext(keys=True, values=False)


def mapped_tables(folder: Path, names: Sequence[str]) -> list[npt.NDArray[Any]] | None:
    """Map tables of ids of a shard to be read beside it; None if one is not there (any more)."""
    try:
        paths = [folder / "ids" / f"{name}.table" for name in names]
        return [np.asarray(np.memmap(path, ENTRY, "r")) for path in paths]
    except FileNotFoundError:
        return None


def _position_in(txn: lmdb.Transaction, about: Any) -> Position:
    """Return the position that a transaction sees; (0, "") when new."""
    data = txn.get(_POSITION, db=about)
    if data is None:
        return 0, ""
    applied, digest = bytes(data).decode().split(" ")
    return int(applied), digest


def _environment(folder: Path) -> _Open:
    """Return the open environment of ``folder``; open it again when the file was removed."""
    name, data = str(folder / "values"), folder / "values" / "data.mdb"
    inode = data.stat().st_ino if data.exists() else 0
    known = _ENVIRONMENTS.get(name)
    if known is not None:
        if known[0] == inode:
            return known[1]
        known[1][0].close()
    folder.joinpath("values").mkdir(parents=True, exist_ok=True)
    env = lmdb.open(
        name,
        map_size=_MAP_BYTES,
        sync=False,
        metasync=False,
        readahead=False,
        max_readers=512,
        max_dbs=3,
    )
    env.reader_check()
    opened = env, env.open_db(b"values"), env.open_db(b"about"), env.open_db(b"ends")
    _ENVIRONMENTS[name] = (data.stat().st_ino, opened)
    return opened


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


@contextmanager
def own_caches(root: Path, database: str, incarnation: str) -> Iterator[None]:
    """Keep a pipeline's caches from others while the body runs; first remove what nobody has.

    Databases of one name, of two clusters, may share ``root``.
    """
    own = root / database / incarnation
    with ExitStack() as held:
        with suppress(OSError):  # it has no locks, or executors elsewhere have the caches
            own.mkdir(parents=True, exist_ok=True)
            file = held.enter_context((own / _IN_USE).open("wb"))
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        remove_other_incarnations(root, database, incarnation)
        yield


def remove_other_incarnations(root: Path, database: str, incarnation: str) -> None:
    """Remove caches of a database's earlier incarnations and of earlier boots of this machine,
    unless a pipeline that runs has them.
    """
    base, boot = root / database, shard_folder(root, database, incarnation, 0).parent
    others = [path for path in base.glob("*") if path.name != incarnation and not _in_use(path)]
    for path in [*others, *(path for path in boot.parent.glob("*") if path != boot)]:
        shutil.rmtree(path, ignore_errors=True)


def _in_use(folder: Path) -> bool:
    """Return True if a pipeline that runs has this folder of caches."""
    try:
        with (folder / _IN_USE).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
