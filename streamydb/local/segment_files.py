"""The older values of a shard, in sorted files beside LMDB; each lies close to its neighbours.

LMDB copies each page that a transaction changes. With many keys a plan changes most pages, so a
file is three times as large as what is in it, and does not fit into memory. So LMDB keeps what was
written last, and when that is much, the older part of it *settles*: it is merged, range after range
of the keys, into *segments*, files that never change (O'Neil et al., "The log-structured merge-tree
(LSM-tree)", 1996). A transaction of LMDB names the segments that belong to it, so all of this is
atomic, and a file that it does not name is removed. A value in LMDB is newer than one in a segment;
an empty one says that the key was removed.
"""

from __future__ import annotations

import ctypes
import mmap
import secrets
import shutil
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import islice, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

import lmdb
import msgspec
import numpy as np

from streamydb.frames.segments import (
    ENTRY_BYTES_MAX,
    PAGE_BYTES,
    Entries,
    Ints,
    fences_of,
    found_in,
    merged,
    packed,
    pages_of,
    unpacked,
)
from streamydb.frames.table import Bytes, Ragged

_SEGMENT_PAGES: Final = 2_048
"""Pages of a segment, about: 8 MiB; more where there are many segments."""

_SEGMENTS_MANY: Final = 128
"""With so many segments, new ones are twice as large, with twice as many three times, and so on:
each takes a file descriptor of each process.
"""

_STEP_ENTRIES: Final = 262_144
"""So many entries settle at a time, at most."""

_ROUNDS_MAX: Final = 2
"""How often settling comes to the last key at a time; large values stay in LMDB."""

_READ_PAGES_MAX: Final = 64
_GAP_PAGES_MAX: Final = 4
_BLOCK_ENTRIES: Final = 256
"""So many entries of LMDB are copied at a time; any of them may be a large value."""

_OFFSET_BYTES: Final = 8
Pair = tuple[Any, Any]
Copied = tuple[bytes, bytes]


class SegmentLostError(Exception):
    """A segment is not there: another worker has replaced it, or somebody has removed its file.

    ``raw``: the list of segments that names it.
    """

    def __init__(self, name: str, raw: bytes) -> None:
        """Take the name of the segment and the list."""
        super().__init__(f"the segment {name} is not there")
        self.raw = raw


class Segment(msgspec.Struct, frozen=True, array_like=True):
    """A file: its ``name``, the ``first`` key, ``pages``, and ``size`` in bytes with fences."""

    name: str
    first: bytes
    pages: int
    size: int


class _Mapped(NamedTuple):
    """A segment in memory: the whole file, the same bytes as an array, and its fences."""

    file: mmap.mmap
    data: Bytes
    fences: Ragged


class Segments:
    """The segments that a transaction of LMDB names, opened when they are needed."""

    def __init__(self, folder: Path, raw: bytes, known: dict[str, _Mapped]) -> None:
        """Take the list as `encoded` makes it; ``known``: segments that are open already."""
        self._folder, self.raw = folder, raw
        self.listed = msgspec.msgpack.decode(raw, type=list[Segment]) if raw else []
        names = {segment.name for segment in self.listed}
        self.open = {name: mapped for name, mapped in known.items() if name in names}
        self._firsts = Ragged.of([segment.first for segment in self.listed])

    def __len__(self) -> int:
        """The number of segments."""
        return len(self.listed)

    def open_all(self) -> None:
        """Open each segment, so that none can be lost any more.
        Raises SegmentLostError: one is not there.
        """
        for number in range(len(self.listed)):
            self._mapped(number)

    def filled(self, keys: Sequence[bytes], recent: list[Any]) -> list[Any]:
        """Return what LMDB has ``recent`` of keys, and what the segments have of the others.
        Raises SegmentLostError: see `open_all`.
        """
        if not self.listed:
            return recent
        missing = [row for row, item in enumerate(recent) if item is None]
        out = [item or None for item in recent]
        for row, item in zip(missing, self.find([keys[row] for row in missing]), strict=True):
            out[row] = item
        return out

    def find(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the items of keys, None where absent; fast if the keys are nearly in order.
        Raises SegmentLostError: see `open_all`.
        """
        out: list[bytes | None] = [None] * len(keys)
        if not keys or not self.listed:
            return out
        names = Ragged.of(keys)
        numbers = pages_of(self._firsts, names)
        for number in np.flatnonzero(np.bincount(numbers[numbers >= 0])).tolist():
            rows = np.flatnonzero(numbers == number)
            mapped, wanted = self._mapped(number), names.take(rows)
            pages = pages_of(mapped.fences, wanted)
            _fetch(mapped, pages)
            starts, ends = found_in(mapped.data, pages, wanted)
            file = mapped.file
            for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
                if end:
                    out[row] = file[start:end]
        return out

    def over(self, newer: Iterable[Pair], start: bytes) -> Iterator[Pair]:
        """Yield keys from ``start`` on with their items, in order; ``newer``: those in LMDB.
        Raises SegmentLostError: see `open_all`.
        """
        if not self.listed:
            yield from newer
            return
        older = self._items(start)
        old = next(older, None)
        for key, item in newer:
            name = bytes(key)
            while old is not None and old[0] < name:
                yield old
                old = next(older, None)
            if old is not None and old[0] == name:
                old = next(older, None)
            if len(item):
                yield name, item
        while old is not None:
            yield old
            old = next(older, None)

    def covering(self, key: bytes) -> tuple[int, bytes | None]:
        """Return the number of the segment into which a key settles, and where the next begins;
        there is a segment.
        """
        number = max(0, int(pages_of(self._firsts, Ragged.of([key]))[0]))
        later = self.listed[number + 1 : number + 2]
        return number, later[0].first if later else None

    def entries(self, number: int) -> Entries:
        """Return all that a segment has. Raises SegmentLostError: see `open_all`."""
        mapped, pages = self._mapped(number), self.listed[number].pages
        mapped.file.madvise(mmap.MADV_WILLNEED, 0, pages * PAGE_BYTES)
        return unpacked(mapped.data, 0, pages)

    def _items(self, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries from ``start`` on; reads more at a time the further it goes."""
        (first, _), several = self.covering(start), 1
        for number in range(first, len(self.listed)):
            mapped, pages = self._mapped(number), self.listed[number].pages
            wanted = Ragged.of([start])
            page = max(0, int(pages_of(mapped.fences, wanted)[0])) if number == first else 0
            while page < pages:
                end = min(pages, page + several)
                keys, items = unpacked(mapped.data, page, end)
                for pair in zip(keys.tolist(), items.tolist(), strict=True):
                    if pair[0] >= start:
                        yield pair
                page, several = end, min(2 * several, _READ_PAGES_MAX)

    def _mapped(self, number: int) -> _Mapped:
        segment = self.listed[number]
        mapped = self.open.get(segment.name)
        if mapped is None:
            try:
                mapped = _map(self._folder / segment.name, segment)
            except (FileNotFoundError, ValueError) as error:
                raise SegmentLostError(segment.name, self.raw) from error
            self.open[segment.name] = mapped
        return mapped


_OPEN: dict[Path, Segments] = {}
"""The segments of this process by folder, as the last transaction has named them."""


def segments_of(folder: Path, raw: bytes) -> Segments:
    """Return the segments that ``raw`` lists; those in memory stay there."""
    known = _OPEN.get(folder)
    if known is None or known.raw != raw:
        known = _OPEN[folder] = Segments(folder, raw, {} if known is None else known.open)
    return known


def forget(folder: Path) -> None:
    """Close the segments in ``folder``."""
    _OPEN.pop(folder, None)


def remove(folder: Path) -> None:
    """Remove the files in ``folder``."""
    shutil.rmtree(folder, ignore_errors=True)


def _map(path: Path, segment: Segment) -> _Mapped:
    """Map a segment's file, for reads here and there.
    Raises FileNotFoundError: it is not there; ValueError: it is shorter.
    """
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), segment.size, access=mmap.ACCESS_READ)
    mapped.madvise(mmap.MADV_RANDOM)
    data = np.frombuffer(mapped, np.uint8)
    at = segment.pages * PAGE_BYTES
    texts = at + (segment.pages + 1) * _OFFSET_BYTES
    offsets = data[at:texts].view("<i8").astype(np.int64)
    return _Mapped(mapped, data, Ragged(data[texts:].copy(), offsets))


def _fetch(mapped: _Mapped, pages: Ints) -> None:
    """Have the disk read all pages at once that are not in memory; reading waits for them.

    Runs with small gaps are read as one: the disk takes as long for a few pages as for one.
    """
    wanted = pages[pages >= 0]
    resident = _resident()
    if len(wanted) < 2 or resident is None:
        return
    first = int(wanted.min())
    count = int(wanted.max()) - first + 1
    there = np.zeros(count, np.uint8)
    address = mapped.data.ctypes.data + first * PAGE_BYTES
    if resident(address, count * PAGE_BYTES, there.ctypes.data):
        return
    missing = np.zeros(count, np.bool_)
    missing[wanted - first] = True
    missing &= (there & 1) == 0
    rows = np.flatnonzero(missing) + first
    if not len(rows):
        return
    cuts = np.flatnonzero(rows[1:] - rows[:-1] > _GAP_PAGES_MAX)
    starts = rows[np.concatenate(([0], cuts + 1))].tolist()
    ends = rows[np.concatenate((cuts, [len(rows) - 1]))].tolist()
    for start, last in zip(starts, ends, strict=True):
        size = (last + 1 - start) * PAGE_BYTES
        mapped.file.madvise(mmap.MADV_WILLNEED, start * PAGE_BYTES, size)


@cache
def _resident() -> Any:
    """Return the system's `mincore`; None where there is none or pages are larger than pages."""
    if mmap.PAGESIZE != PAGE_BYTES:
        return None
    try:
        mincore = ctypes.CDLL(None).mincore
    except (AttributeError, OSError):
        return None
    mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    return mincore


class _Following(NamedTuple):
    """Entries of LMDB that settle together.

    ``number``: of the segment into which they do; ``seen``: how many entries were looked at;
    ``behind``: the key behind them, None at the end.
    """

    number: int
    keys: list[bytes]
    items: Ragged
    seen: int
    behind: bytes | None


class Settling:
    """Moves entries out of LMDB into segments, in a write transaction."""

    def __init__(
        self, folder: Path, txn: lmdb.Transaction, values: Any, segments: Segments
    ) -> None:
        """Begin with the segments that the transaction names; remove files that it does not.

        Nobody else settles meanwhile, so what it does not name was left by who did not commit.
        """
        self._folder, self._txn, self._values, self._segments = folder, txn, values, segments
        folder.mkdir(exist_ok=True)
        named = {segment.name for segment in segments.listed}
        for path in folder.iterdir():
            if path.name not in named:
                path.unlink(missing_ok=True)
        self._replaced: list[str] = []

    @property
    def raw(self) -> bytes:
        """The list of segments as it is now."""
        return self._segments.raw

    def run(self, after: bytes, pages_max: int, entries_max: int) -> bytes:
        """Settle until LMDB has ``pages_max`` pages of small values, or about ``entries_max``
        entries have been looked at; return the key to go on at, ``after`` of the next time.
        Raises SegmentLostError: see `Segments.open_all`.
        """
        rounds = 0
        while entries_max > 0 and rounds < _ROUNDS_MAX:
            if self._txn.stat(self._values)["leaf_pages"] <= pages_max:
                break
            following = self._next(after)
            if following.keys:
                self._merge(following.number, following.keys, following.items)
            entries_max -= following.seen
            rounds += following.behind is None
            after = following.behind or b""
        return after

    def finish(self) -> None:
        """Remove the files that were replaced; the transaction is committed."""
        for name in self._replaced:
            (self._folder / name).unlink(missing_ok=True)

    def _next(self, after: bytes) -> _Following:
        """Return what settles next."""
        keys: list[bytes] = []
        items: list[bytes] = []
        number, seen, end, behind = 0, 0, None, None
        with self._txn.cursor(self._values) as cursor:
            pairs: Any = iter(cursor if cursor.set_range(after) else ())
            while block := list[Copied](islice(pairs, _BLOCK_ENTRIES)):
                if not seen and len(self._segments):
                    number, end = self._segments.covering(block[0][0])
                room = min(len(block), _STEP_ENTRIES - seen)
                if end is not None and block[-1][0] >= end:
                    room = min(room, bisect_left(block, end, key=itemgetter(0)))
                seen += room
                small = [
                    (key, item)
                    for key, item in block[:room]
                    if len(key) + len(item) <= ENTRY_BYTES_MAX
                ]
                keys += [key for key, _ in small]
                items += [item for _, item in small]
                if room < len(block):
                    behind = block[room][0]
                    break
        return _Following(number, keys, Ragged.of(items), seen, behind)

    def _merge(self, number: int, keys: list[bytes], items: Ragged) -> None:
        segments = self._segments
        old = segments.entries(number) if len(segments) else _NONE
        pages = _SEGMENT_PAGES * (1 + len(segments) // _SEGMENTS_MANY)
        entries = merged(old, Entries(Ragged.of(keys), items))
        made = [self._write(part) for part in _parts(entries, pages)]
        self._delete(keys)
        self._replaced += [segment.name for segment in segments.listed[number : number + 1]]
        listed = [*segments.listed[:number], *made, *segments.listed[number + 1 :]]
        self._segments = segments_of(self._folder, msgspec.msgpack.encode(listed))

    def _delete(self, keys: list[bytes]) -> None:
        """Delete keys that are in LMDB, in order; mostly each is the next one."""
        with self._txn.cursor(self._values) as cursor:
            for key in keys:
                if cursor.key() != key:
                    cursor.set_key(key)
                cursor.delete()

    def _write(self, entries: Entries) -> Segment:
        """Write a segment; its name is new, so nobody has another file of that name in memory."""
        pages, starts = packed(entries)
        fences = fences_of(entries, starts)
        name = secrets.token_hex(8)
        parts = pages.tobytes(), fences.offsets.astype("<i8").tobytes(), fences.data.tobytes()
        with (self._folder / name).open("wb") as file:
            file.writelines(parts)
        return Segment(name, entries.keys[0], len(starts), sum(map(len, parts)))


_NONE: Final = Entries(Ragged.empty(), Ragged.empty())


def _parts(entries: Entries, pages: int) -> Iterator[Entries]:
    """Cut entries into segments of so many pages, about."""
    keys, items = entries
    count = len(keys)
    several = max(1, round((len(keys.data) + len(items.data)) / (pages * PAGE_BYTES)))
    bounds = [count * part // several for part in range(several + 1)]
    for start, end in pairwise(bounds):
        if end > start:
            yield Entries(keys.part(start, end), items.part(start, end))
