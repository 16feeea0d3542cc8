"""Repair a checkpoint that lost its newest files, or was copied while it ran.

Spark refuses such a folder, or worse: a commit without its offsets makes it repeat the wrong batch.
Before the query starts, `mend` finds the newest batch after which everything is whole (offsets,
commit, the state of every shard) and sets aside what lies beyond it. That is a step back to an
earlier moment of the same pipeline: the batches after it are made anew, what they write is the same
to the byte, and feedback of the plans that are gone is ignored.
"""

from __future__ import annotations

import uuid
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from streamydb.errors import ConfigurationError
from streamydb.local.file_lock import write_whole
from streamydb.records.formats import UNREADABLE

REBUILD: Final = (
    "run `streamydb rebuild`: it sets the checkpoint aside and rebuilds from the log, or from a "
    "backup (docs/operations.md, 'A damaged checkpoint')"
)
"""What to do about a checkpoint that cannot be gone on with: a command that rebuilds."""

# Hadoop's checksum files begin with a magic number and the bytes of a sum, 512 by default.
_CHUNK: Final = 512
_CRC_HEAD: Final = 8


class Resumption(NamedTuple):
    """The batch after which a query goes on.

    Attributes:
        batch: the last batch that is done; -1: none.
        moved: files that were set aside, relative to the query's folder.
        again: how many batches that were done are executed again.
    """

    batch: int
    moved: list[str]
    again: int


def mend(checkpoint: Path, shards: int, operators: int) -> Resumption | None:
    """Set aside what is beyond the newest whole batch; None: the query has not begun.

    ``shards``: of the database: partitions of each operator's state. ``operators``: how many
    stateful operators the query has.
    Raises ConfigurationError: there is no whole batch; it names a file and the command that
    rebuilds.
    """
    query = checkpoint / "query"
    if not query.exists():
        return None
    _renew_metadata(query)
    folder = _Query(query, shards, operators)
    begun = max([*folder.offsets, *folder.commits], default=-1)
    batch = folder.newest_whole()
    if batch is None:
        raise ConfigurationError(f"{folder.fault()}; {REBUILD}")
    moved = list(folder.beyond(batch))
    if moved:
        _set_aside(checkpoint, moved)
    done = max(folder.commits, default=-1)
    names = [str(path.relative_to(query)) for path in moved]
    return Resumption(batch, names, max(0, min(done, begun) - batch))


def offsets_of(checkpoint: Path, batch: int) -> dict[str, dict[int, int]]:
    """Up to which offsets a batch has read: by topic, by partition; empty: there is no file."""
    path = checkpoint / "query" / "offsets" / str(batch)
    by_topic: dict[str, dict[int, int]] = {}
    if batch < 0 or not path.exists():
        return by_topic
    for line in path.read_text("utf-8").splitlines()[2:]:
        if line.startswith("{"):
            for topic, offsets in msgspec.json.decode(line, type=dict[str, dict[str, int]]).items():
                by_topic[topic] = {int(number): offset for number, offset in offsets.items()}
    return by_topic


def begins_of(checkpoint: Path) -> dict[str, dict[int, int]]:
    """From which offsets the first batch reads, as Spark has noted: by topic, by partition."""
    by_topic: dict[str, dict[int, int]] = {}
    for path in (checkpoint / "query" / "sources").glob("*/0"):
        _, brace, text = path.read_bytes().partition(b"{")
        try:
            offsets = msgspec.json.decode(brace + text, type=dict[str, dict[int, int]])
        except UNREADABLE:  # torn: Spark refuses it
            continue
        by_topic |= offsets
    return by_topic


class _Query:
    """The files of a query's checkpoint, each looked at once."""

    def __init__(self, query: Path, shards: int, operators: int) -> None:
        self._query = query
        self._known: dict[Path, bool] = {}
        self.offsets = numbered(query / "offsets")
        self.commits = numbered(query / "commits")
        self._stores = [
            _Store(query / "state" / str(operator) / str(shard), self._known)
            for operator in range(operators)
            for shard in range(shards)
        ]

    def newest_whole(self) -> int | None:
        """The newest batch that is done and whole; -1: nothing is done; None: there is none.

        Spark writes the offsets of a batch after the commit of the one before, so they stand for
        it where it was not copied. Two files of offsets are needed to go on.
        """
        for batch in sorted(self.offsets, reverse=True):
            done = self._is_log(self.commits.get(batch)) or self._has(batch + 1)
            enough = batch == 0 or self._has(batch - 1) or self._has(batch + 1)
            if done and enough and self._has(batch) and self._state_is_whole(batch + 1):
                return batch
        return -1 if max([*self.offsets, *self.commits], default=-1) <= 0 else None

    def beyond(self, batch: int) -> Iterator[Path]:
        """Files that must not be there when the query goes on after a batch."""
        repeats = self._has(batch + 1)
        yield from (
            path
            for number, path in self.offsets.items()
            if number > batch + 1 or (number == batch + 1 and not repeats)
        )
        yield from (
            path
            for number, path in self.commits.items()
            if number > batch or (number == batch and not self._is_log(path))
        )
        for store in self._stores:
            yield from store.beyond(batch + 1, repeats=repeats)

    def fault(self) -> str:
        """Say what is wrong, with the name of a file."""
        for number, path in sorted(self.offsets.items(), reverse=True):
            if not self._has(number):
                return f"the checkpoint file {path} is damaged"
        for store in self._stores:
            damaged = store.fault()
            if damaged is not None:
                return f"the checkpoint file {damaged} is damaged"
        return f"the checkpoint {self._query} lacks files of every batch that it has done"

    def _has(self, batch: int) -> bool:
        return self._is_log(self.offsets.get(batch))

    def _is_log(self, path: Path | None) -> bool:
        if path is None or not _is_whole(path, self._known):
            return False
        first, *rest = path.read_bytes().split(b"\n")
        try:
            return first[:1] == b"v" and bool([msgspec.json.decode(line) for line in rest if line])
        except UNREADABLE:
            return False

    def _state_is_whole(self, version: int) -> bool:
        return all(store.base(version) is not None for store in self._stores)


class _Store:
    """The state of one shard: snapshots (<version>.zip) and what each version changed."""

    def __init__(self, folder: Path, known: dict[Path, bool]) -> None:
        self._folder = folder
        self._known = known
        self._snapshots = numbered(folder, ".zip")
        self._changes = numbered(folder, ".changelog")
        ours = {path.name for each in (self._snapshots, self._changes) for path in each.values()}
        names = {path.name for path in folder.glob("*") if path.is_file()}
        self._is_known = all(name in ours or name.startswith(".") for name in names)

    def base(self, version: int) -> int | None:
        """The newest whole snapshot from which all changes to a version are there; 0: nothing.

        What another state store than ours keeps there is Spark's to judge.
        """
        if not self._is_known:
            return version
        at = version
        while at > 0:
            if self._is_snapshot(at):
                return at
            if not self._is_change(at):
                return None
            at -= 1
        return 0

    def beyond(self, version: int, *, repeats: bool) -> Iterator[Path]:
        """Damaged snapshots, and what batches left that were not done, or count no more.

        Spark writes the changes of a batch that it repeats anew. But it would later take a snapshot
        of the first attempt for one of its own, and the first attempt may have planned otherwise.
        """
        for number, path in self._snapshots.items():
            if number > version or not self._is_snapshot(number):
                yield path
        last = version + 1 if repeats else version
        yield from (path for number, path in self._changes.items() if number > last)

    def fault(self) -> Path | None:
        """A damaged file."""
        for number, path in sorted(self._changes.items(), reverse=True):
            if not self._is_change(number):
                return path
        bad = [path for number, path in self._snapshots.items() if not self._is_snapshot(number)]
        return bad[0] if bad else None

    def _is_change(self, version: int) -> bool:
        path = self._changes.get(version)
        return path is not None and _is_whole(path, self._known)

    def _is_snapshot(self, version: int) -> bool:
        path = self._snapshots.get(version)
        if path is None or not _is_whole(path, self._known):
            return False
        try:
            with zipfile.ZipFile(path) as archive:
                text = archive.read("metadata").partition(b"\n")[2]
            files = msgspec.json.decode(text, type=_SnapshotFiles).sstFiles
        except (OSError, KeyError, zipfile.BadZipFile, *UNREADABLE):
            return False
        return all(
            (path := self._folder / "SSTs" / file.dfsSstFileName).exists()
            and path.stat().st_size == file.sizeBytes
            for file in files
        )


class _SnapshotFile(msgspec.Struct):
    dfsSstFileName: str  # noqa: N815 - Spark's names
    sizeBytes: int  # noqa: N815


class _SnapshotFiles(msgspec.Struct):
    sstFiles: list[_SnapshotFile] = []  # noqa: N815


def numbered(folder: Path, suffix: str = "") -> dict[int, Path]:
    """The files that are named by a number, by it."""
    names = ((path, path.name.removesuffix(suffix)) for path in folder.glob(f"*{suffix}"))
    return {int(name): path for path, name in names if name.isdigit()}


def _is_whole(path: Path, known: dict[Path, bool]) -> bool:
    """Return True if a file is what its checksums say; one without checksums must not be empty."""
    if path not in known:
        known[path] = _checked(path)
    return known[path]


def _checked(path: Path) -> bool:
    sums = path.with_name(f".{path.name}.crc")
    data = path.read_bytes()
    known = sums.read_bytes() if sums.exists() else b""
    if not data or len(known) < _CRC_HEAD:
        return bool(data)
    size = int.from_bytes(known[4:_CRC_HEAD], "big") or _CHUNK
    view = memoryview(data)
    checksums = b"".join(
        zlib.crc32(view[at : at + size]).to_bytes(4, "big") for at in range(0, len(data), size)
    )
    return checksums == known[_CRC_HEAD:]


def _renew_metadata(query: Path) -> None:
    """Write the query's id anew if its file was lost: nothing depends on which id it is."""
    path = query / "metadata"
    if not path.exists() or _checked(path):
        return
    _set_aside(query.parent, [path])
    write_whole(path, f'{{"id":"{uuid.uuid4()}"}}'.encode())


def _set_aside(checkpoint: Path, files: list[Path]) -> None:
    """Move files, with their checksums, to a folder of the checkpoint that nobody reads."""
    number = 1
    while (aside := checkpoint / f"damaged-{number}").exists():
        number += 1
    for path in files:
        target = aside / path.relative_to(checkpoint)
        target.parent.mkdir(parents=True, exist_ok=True)
        sums = path.with_name(f".{path.name}.crc")
        if sums.exists():
            sums.rename(target.with_name(sums.name))
        path.rename(target)
