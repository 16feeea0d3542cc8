"""The checkpoint folder of a query as Spark writes and reads it: a model, file by file.

A batch writes its offsets, the changes of each store, and its commit; snapshots follow at any
time, and what is old is deleted. A start takes the newest offsets for the batch to do, unless its
commit is there, and loads each store from its newest snapshot. Contents are hashes that chain what
was executed, so a state that was put together of two histories is none that anybody has written.
"""

from __future__ import annotations

import hashlib
import io
import json
import random
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["SparkQuery", "SparkRefuses", "Start", "read_from", "with_sums", "written_to"]

Files = dict[str, bytes]
_CHUNK = 512


class SparkRefuses(Exception):  # noqa: N818 - what it does
    """Spark cannot start on these files."""


class Start(NamedTuple):
    """A start of the query: the batch to do, where it begins to read, its end if it has one."""

    batch: int
    begins: int
    ends: int | None


def sums_of(data: bytes) -> bytes:
    """The file with the checksums of another one."""
    chunks = (data[at : at + _CHUNK] for at in range(0, len(data), _CHUNK))
    sums = b"".join(zlib.crc32(chunk).to_bytes(4, "big") for chunk in chunks)
    return b"crc\0" + _CHUNK.to_bytes(4, "big") + sums


def with_sums(name: str, data: bytes) -> Files:
    """A file and its checksums, by name."""
    folder, _, last = name.rpartition("/")
    return {name: data, f"{folder}/.{last}.crc".lstrip("/"): sums_of(data)}


def snapshot_of(folder: str, version: int, value: str) -> tuple[Files, Files]:
    """What a snapshot refers to, and the snapshot, in the order in which they are written."""
    name = f"{value[:8]}-{version}.sst"
    listed = json.dumps({"sstFiles": [{"dfsSstFileName": name, "sizeBytes": len(value)}]})
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("metadata", f"v1\n{listed}")
    files = {f"{folder}/SSTs/{name}": value.encode()}
    return files, with_sums(f"{folder}/{version}.zip", data.getvalue())


class SparkQuery:
    """A query over a log that never ends.

    Attributes:
        files: the folder, by name.
        moments: what the folder was like after each step.
        read: up to where of the log a state of a store comes from, by its hash.
    """

    def __init__(self, dice: random.Random, stores: Iterable[str]) -> None:
        """Nothing has run; ``stores``: the folders of the state."""
        self.dice = dice
        self.stores = list(stores)
        self.files: Files = {}
        self.moments: list[Files] = [{}]
        self.read = {_hash(store, ""): 0 for store in self.stores}
        self._starts = 0
        self._kept = dice.randint(2, 5)
        self._snapshots = dice.choice([0.05, 0.2, 0.6])
        self._write(with_sums("metadata", b'{"id":"x"}'))

    def start(self) -> Start:
        """What Spark makes of the files.

        Raises:
            SparkRefuses: they are not what it has written.
        """
        offsets, commits = self._numbers("offsets/"), self._numbers("commits/")
        if not offsets:
            if commits:
                raise SparkRefuses("commits without offsets")
            return Start(0, 0, None)
        newest = max(offsets)
        if max(commits, default=-1) > newest:
            raise SparkRefuses("a commit without its offsets")
        ends = self._ends(newest)
        before = self._ends(newest - 1) if newest else 0
        if newest in commits:
            self._json(f"commits/{newest}")
            return Start(newest + 1, ends, None)
        return Start(newest, before, ends)

    def load(self, store: str, version: int) -> str:
        """The state of a store, from its newest snapshot; a hash that nobody knows if it is mixed.

        Raises:
            SparkRefuses: a file is missing or damaged.
        """
        found = [n for n in self._numbers(f"{store}/", ".zip") if n <= version]
        at, value = 0, _hash(store, "")
        if found:
            at = max(found)
            value = self._snapshot(store, at)
        for number in range(at + 1, version + 1):
            change = self._json(f"{store}/{number}.changelog")
            value = change["after"] if change["before"] == value else _hash(value, str(change))
        return value

    def run(self, batches: int) -> None:
        """Start, and do some batches; the last one may be abandoned anywhere.

        Each start plans in its own way, so a batch that is repeated leaves another state.
        """
        start = self.start()
        self._starts += 1
        values = {store: self.load(store, start.batch) for store in self.stores}
        for left in reversed(range(batches)):
            steps = self.dice.randint(0, 2 + len(self.stores)) if left == 0 else None
            ends = self._planned(start)
            if not self._batch(start.batch, ends, values, steps):
                return
            start = Start(start.batch + 1, ends, None)

    def _planned(self, start: Start) -> int:
        """Where a batch ends; that is written, unless it was before."""
        if start.ends is not None:
            return start.ends
        ends = start.begins + self.dice.randint(1, 10**9)
        lines = "v1", '{"batchWatermarkMs":0}', json.dumps({"a.transactions": {"0": ends}})
        self._add(f"offsets/{start.batch}", "\n".join(lines).encode())
        return ends

    def _batch(self, batch: int, ends: int, values: dict[str, str], steps: int | None) -> bool:
        """A batch; whether it was not abandoned after some steps."""
        todo = []
        for store in self.dice.sample(self.stores, len(self.stores)):
            before, after = values[store], _hash(values[store], f"{store} {ends} {self._starts}")
            values[store], self.read[after] = after, ends
            change = json.dumps({"before": before, "after": after, "more": "x" * 600})
            todo.append(with_sums(f"{store}/{batch + 1}.changelog", change.encode()))
        for number, files in enumerate(todo):
            if number == steps:
                return False
            self._write(files)
            if self.dice.random() < self._snapshots:
                store = next(iter(files)).rpartition("/")[0]
                for each in snapshot_of(store, batch + 1, values[store]):
                    self._write(each)
        if steps == len(todo):
            return False
        self._add(f"commits/{batch}", b'v1\n{"nextBatchWatermarkMs":0}')
        self._purge(batch)
        return True

    def _add(self, name: str, data: bytes) -> None:
        """Write a file that must not be there yet."""
        if name in self.files:
            raise SparkRefuses(f"concurrent update of {name}")
        self._write(with_sums(name, data))

    def _purge(self, batch: int) -> None:
        """Delete what no start needs that goes back by a few batches."""
        oldest = batch - self._kept
        for folder in ("offsets/", "commits/"):
            self._delete(f"{folder}{number}" for number in self._numbers(folder) if number < oldest)
        for store in self.stores:
            found = [n for n in self._numbers(f"{store}/", ".zip") if n <= oldest]
            for kind in (".zip", ".changelog") if found else ():
                numbers = self._numbers(f"{store}/", kind)
                self._delete(f"{store}/{n}{kind}" for n in numbers if n < max(found))

    def _write(self, files: Files) -> None:
        self.files = {**self.files, **files}
        self.moments.append(self.files)

    def _delete(self, names: Iterable[str]) -> None:
        gone = {each for name in names for each in with_sums(name, b"")}
        self.files = {name: data for name, data in self.files.items() if name not in gone}
        self.moments.append(self.files)

    def _numbers(self, folder: str, suffix: str = "") -> list[int]:
        names = (name[len(folder) :] for name in self.files if name.startswith(folder))
        numbers = (name.removesuffix(suffix) for name in names if name.endswith(suffix))
        return [int(name) for name in numbers if name.isdigit()]

    def _ends(self, batch: int) -> int:
        return int(self._json(f"offsets/{batch}")["a.transactions"]["0"])

    def _snapshot(self, store: str, version: int) -> str:
        try:
            with zipfile.ZipFile(io.BytesIO(self._whole(f"{store}/{version}.zip"))) as archive:
                listed = json.loads(archive.read("metadata").partition(b"\n")[2])["sstFiles"][0]
        except zipfile.BadZipFile as error:
            raise SparkRefuses(f"{store}/{version}.zip") from error
        value = self.files.get(f"{store}/SSTs/{listed['dfsSstFileName']}", b"")
        if len(value) != listed["sizeBytes"]:
            raise SparkRefuses(listed["dfsSstFileName"])
        return value.decode()

    def _json(self, name: str) -> Any:
        try:
            return json.loads(self._whole(name).rpartition(b"\n")[2])
        except ValueError as error:
            raise SparkRefuses(name) from error

    def _whole(self, name: str) -> bytes:
        """A file, after its checksums were looked at."""
        data = self.files.get(name)
        if not data:
            raise SparkRefuses(f"{name} is missing or empty")
        sums = self.files.get(list(with_sums(name, b""))[1])
        if sums and sums != sums_of(data):
            raise SparkRefuses(f"{name} is torn")
        return data


def _hash(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=12).hexdigest()


def written_to(folder: Path, files: Files) -> None:
    """Put the files on a disk."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def read_from(folder: Path) -> Files:
    """The files on a disk."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
