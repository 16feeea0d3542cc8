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
from typing import Any, Final, TypeVar

import lmdb

from streamydb.frames.blobs import KeyScan, Position, end_name, ends_at, first_name, size_of
from streamydb.frames.segments import PAGE_BYTES
from streamydb.local import segment_files
from streamydb.local.memory import memory_bytes
from streamydb.local.segment_files import SegmentLostError, Segments, Settling, segments_of

_IN_USE: Final = "in-use"
"""A file in the folder of an incarnation, locked by the pipeline that runs."""

_MAP_BYTES = 1 << 38
_POSITION = b"position"
_BASE = b"base"
_SEGMENTS: Final = b"segments"
_SETTLED: Final = b"settled"
"""Up to which key values have settled in the current round (`segment_files`)."""

_MARK: Final = "+segments-1"
"""Behind the position of a file that has segments, with the version of their form. A release that
does not know it, finds a position that it cannot trust, and makes the file anew.
"""

_RECENT_PAGES_MAX: Final = 65_536
"""Pages of LMDB (256 MiB) that hold small values; what is older settles. More of them are copied by
each plan, and fewer make each settling rewrite more of the segments.
"""

_WHOLE_SHARE: Final = 32
"""Nothing settles while all pages together have less than such a part of the memory: then the disk
has nothing to do, and settling would only take processor time.
"""

_SNAPSHOT_ATTEMPTS: Final = 3
_SETTLED_MIN: Final = 4_096
_SETTLED_TIMES: Final = 2
"""An apply settles so many times the keys that it writes, so that it gains on them."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_Open = tuple[lmdb.Environment, Any, Any, Any]
_Items = tuple[list[tuple[bytes, bytes]], list[bytes], Sequence[bytes]]
_Found = TypeVar("_Found")
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
    """A shard's values in an LMDB file (`streamydb.key_processor.value_store.ValueStore`), and the
    older ones in [segments](segment_files.py) beside it.
    """

    alone = False

    def __init__(self, folder: Path) -> None:
        self._env, self._values, self._about, self._ends = _environment(folder)
        self._folder = folder / _SEGMENTS.decode()
        self._slow = False

    @staticmethod
    def close(folder: Path) -> None:
        """Close the file in ``folder`` if this process has it open;
        it is opened again when asked.
        """
        segment_files.forget(folder / _SEGMENTS.decode())
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
        if self._slow:
            recent = self._recent_together(at, keys)
            if recent is None:
                return None
            return self._read(at, lambda _, segments: segments.filled(keys, recent))
        return self._read(at, lambda txn, segments: segments.filled(keys, self._get(txn, keys)))

    def _get(self, txn: lmdb.Transaction, keys: Sequence[bytes]) -> list[bytes | None]:
        """Load what LMDB has of keys, one by one, and note whether that was slow."""
        begun = perf_counter()
        recent: list[Any] = list(map(txn.get, keys))
        self._slow = perf_counter() - begun > _SLOW_S * max(len(keys), _THREADS)
        return recent

    def _recent_together(self, at: Position, keys: Sequence[bytes]) -> list[bytes | None] | None:
        """Load what LMDB has of keys in several threads: it lets others run while it waits."""
        begun = perf_counter()
        each = max(1, -(-len(keys) // _THREADS))
        parts = [keys[start : start + each] for start in range(0, len(keys), each)]
        whole: list[bytes | None] = []
        for values in _threads().map(partial(self._recent, at), parts or [keys]):
            if values is None:
                return None
            whole += values
        self._slow = perf_counter() - begun > _SLOW_S * max(len(keys), _THREADS)
        return whole

    def _recent(self, at: Position, keys: Sequence[bytes]) -> list[bytes | None] | None:
        with self._env.begin(self._values) as txn:
            return list(map(txn.get, keys)) if self._position(txn) == at else None

    def sizes(self, at: Position, keys: Sequence[bytes]) -> list[int] | None:
        """Return how many bytes each encoded value has, -1 where absent; None when not ``at``.

        No value of LMDB is copied.
        """

        def sizes(txn: lmdb.Transaction, segments: Segments) -> list[int]:
            items = segments.filled(keys, list(map(txn.get, keys)))
            return [-1 if value is None else size_of(value) for value in items]

        return self._read(at, sizes, buffers=True)

    def scan(self, at: Position, wanted: KeyScan) -> list[tuple[bytes, bytes]] | None:
        """The keys in a range with their encoded values; None when the file is not ``at``."""

        def scanned(txn: lmdb.Transaction, segments: Segments) -> list[tuple[bytes, bytes]]:
            with txn.cursor() as cursor:
                newer = cursor if cursor.set_range(wanted.start) else ()
                return wanted.taken(segments.over(newer, wanted.start))

        return self._read(at, scanned, buffers=True)

    def _read(
        self,
        at: Position,
        what: Callable[[lmdb.Transaction, Segments], _Found],
        *,
        buffers: bool = False,
    ) -> _Found | None:
        """Return ``what`` is in the file; None when it is not ``at``, or has lost a segment."""
        begin: Any = self._env.begin
        while True:
            with begin(self._values, buffers=buffers) as txn:
                if self._position(txn) != at:
                    return None
                segments = self._segments(txn)
                try:
                    return what(txn, segments)
                except SegmentLostError as error:
                    lost = error
            self._lost(lost)

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
        """Apply writes and move to ``reached``, or False: the file was not at ``expected``, or has
        lost a segment.
        """
        try:
            if not self._applied(expected, reached, (puts, deletes, ends)):
                return False
            self._settle(reached, len(puts) + len(deletes))
        except SegmentLostError as lost:
            self._lost(lost)
            return self.position() == reached
        return True

    def _applied(self, expected: Position, reached: Position, items: _Items) -> bool:
        """Apply writes in one transaction."""
        puts, deletes, ends = items
        with self._env.begin(self._values, write=True) as txn:
            if self._position(txn) != expected:
                return False
            segments = self._segments(txn)
            if txn.stat(self._ends)["entries"]:
                self._forget_ends(txn, segments, [*(key for key, _ in puts), *deletes])
            if ends:
                txn.cursor(self._ends).putmulti([(name, b"") for name in ends])
            txn.cursor().putmulti(puts)
            for key, older in zip(deletes, segments.find(deletes), strict=True):
                if older is None:
                    txn.delete(key)
                else:
                    txn.put(key, b"")
            self._move(txn, reached, segments=len(segments) > 0)
        return True

    def _settle(self, at: Position, written: int) -> None:
        """Move older values into segments if LMDB has many; all values stay what they are."""
        with self._env.begin(self._values) as txn:
            pages = txn.stat(self._values)["leaf_pages"]
            if pages <= _RECENT_PAGES_MAX:
                return
            whole = not len(self._segments(txn))
        if whole and pages * PAGE_BYTES * _WHOLE_SHARE <= memory_bytes():
            return
        most = max(_SETTLED_MIN, _SETTLED_TIMES * written)
        with self._env.begin(self._values, write=True) as txn:
            if self._position(txn) != at:
                return
            settling = Settling(self._folder, txn, self._values, self._segments(txn))
            after = txn.get(_SETTLED, b"", db=self._about)
            txn.put(_SETTLED, settling.run(after, _RECENT_PAGES_MAX, most), db=self._about)
            txn.put(_SEGMENTS, settling.raw, db=self._about)
            self._move(txn, at, segments=True)
        settling.finish()

    def clear(self, expected: Position, reached: Position) -> bool:
        """Remove everything and move to ``reached``, or False: it was not at ``expected``."""
        with self._env.begin(write=True) as txn:
            if self._position(txn) != expected:
                return False
            self._drop(txn, reached)
        return True

    def _drop(self, txn: lmdb.Transaction, reached: Position) -> None:
        """Remove everything. Who dies before the transaction is committed has lost the segments."""
        segment_files.remove(self._folder)
        txn.drop(self._values, delete=False)
        txn.drop(self._ends, delete=False)
        self._move(txn, reached, segments=False)

    def _lost(self, lost: SegmentLostError) -> None:
        """Begin anew without values, because some are lost; unless another worker has replaced the
        segments that named the lost one.
        """
        with self._env.begin(write=True) as txn:
            if self._segments(txn).raw == lost.raw:
                self._drop(txn, (0, ""))

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

    def _forget_ends(self, txn: lmdb.Transaction, segments: Segments, keys: list[bytes]) -> None:
        """Take the names of keys that are written out of the index."""
        items = segments.filled(keys, list(map(txn.get, keys)))
        for key, item in zip(keys, items, strict=True):
            if item is not None and ends_at(item) is not None:
                txn.delete(end_name(key, item), db=self._ends)

    def _segments(self, txn: lmdb.Transaction) -> Segments:
        return _segments_in(txn, self._about, self._folder)

    def _position(self, txn: lmdb.Transaction) -> Position:
        return _position_in(txn, self._about)

    def _move(self, txn: lmdb.Transaction, position: Position, *, segments: bool) -> None:
        mark = _MARK if segments else ""
        txn.put(_POSITION, f"{position[0]} {position[1]}{mark}".encode(), db=self._about)


class LmdbSnapshot:
    """The values of a shard as they are at one moment, for who reads them beside the shard.

    It belongs to the thread that has made it. As long as it is open, the file keeps the pages that
    were written over since.
    """

    def __init__(self, folder: Path) -> None:
        """Open the file in ``folder``, which is there.
        Raises SegmentLostError: a segment is not there (any more).
        """
        env, self._values, self._about, self._ends = _environment(folder)
        self._txn = env.begin(self._values)
        try:
            self._segments = _segments_in(self._txn, self._about, folder / _SEGMENTS.decode())
            self._segments.open_all()
        except SegmentLostError:
            self._txn.abort()
            raise

    @classmethod
    def of(cls, folder: Path) -> LmdbSnapshot | None:
        """Return the values in ``folder``; None if there is no file, or not all of it now.

        The shard may replace segments while they are opened; the next attempt has its new ones.
        """
        for _ in range(_SNAPSHOT_ATTEMPTS):
            with suppress(SegmentLostError):
                return cls(folder) if (folder / "values" / "data.mdb").exists() else None
        return None

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
        return self._segments.filled(keys, list(map(self._txn.get, keys)))

    def items(self, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys from ``start`` on with their encoded values, in order."""
        with self._txn.cursor() as cursor:
            newer = cursor if cursor.set_range(start) else ()
            yield from self._segments.over(newer, start)

    def ends(self, after: bytes) -> Iterator[bytes]:
        """Yield the names behind ``after`` of what ends, in order (`frames.blobs.end_name`)."""
        with self._txn.cursor(self._ends) as cursor:
            if cursor.set_range(after + b"\0"):
                yield from cursor.iternext(keys=True, values=False)


def _segments_in(txn: lmdb.Transaction, about: Any, folder: Path) -> Segments:
    """Return the segments that a transaction names.

    A list without a mark was left by a release that has made the file anew.
    """
    marked = bytes(txn.get(_POSITION, b"", db=about)).endswith(_MARK.encode())
    return segments_of(folder, bytes(txn.get(_SEGMENTS, b"", db=about)) if marked else b"")


def _position_in(txn: lmdb.Transaction, about: Any) -> Position:
    """Return the position that a transaction sees; (0, "") when new."""
    data = txn.get(_POSITION, db=about)
    if data is None:
        return 0, ""
    applied, digest = bytes(data).decode().removesuffix(_MARK).split(" ")
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
