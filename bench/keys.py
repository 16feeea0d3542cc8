"""Pages that a transfer reads where a shard has more keys than memory, and how fast the disk is.

    python -m bench.keys build FOLDER [--accounts 30000000]
    python -m bench.keys run FOLDER [--memory-mb 3200] [--plans 12] [--transfers 200000]
    python -m bench.keys disk FOLDER

Only the values of one shard, as the key processor reads and writes them: no Kafka, no Spark, no
execution. ``build`` writes the accounts; ``run`` reads and writes the keys of plans of uniform
transfers in a process of its own, in a memory cgroup (version 1, so as root on Linux) that page
cache and process share. ``disk`` reads random pages past the page cache, one at a time and by 32
threads: the limit that no store can pass.
"""

from __future__ import annotations

import argparse
import mmap
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import numpy as np

from streamydb.frames import program as p
from streamydb.frames.table import Ragged
from streamydb.frames.value_rows import WrittenValues
from streamydb.key_processor.memory import MemoryBlobs
from streamydb.key_processor.value_store import items_of, nearly_sorted
from streamydb.key_processor.values import ShardValues, ValuesState
from streamydb.local.shard_files import LmdbValues

__all__ = ["Spent", "main"]

PAGE: Final = 4_096
_LOADED: Final = 500_000
"""Accounts that one plan of the loading phase writes."""

_CGROUPS: Final = Path("/sys/fs/cgroup/memory")
_OWN: Final = Path("/proc/self/cgroup")
_DISK_S: Final = 4.0


class Spent(NamedTuple):
    """Counters of this process: seconds, processor seconds, bytes from and to the disk, faults."""

    clock_s: float
    cpu_s: float
    read: float
    written: float
    faults: float

    @classmethod
    def now(cls) -> Spent:
        """Return the counters as they are."""
        lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
        io = {name: int(value) for name, value in (line.split(": ") for line in lines)}
        used = resource.getrusage(resource.RUSAGE_SELF)
        return cls(
            time.perf_counter(),
            used.ru_utime + used.ru_stime,
            io["read_bytes"],
            io["write_bytes"],
            used.ru_majflt,
        )

    def since(self, before: Spent) -> Spent:
        """Return what was spent since ``before``."""
        return Spent(*(after - then for after, then in zip(self, before, strict=True)))


def _writes(accounts: np.ndarray, version: int) -> WrittenValues:
    """Return a plan's writes of accounts, each once."""
    n = len(accounts)
    keys = Ragged.of([b"acct/%d" % number for number in accounts.tolist()])
    tags = np.full(n, p.INT, np.uint8)
    balances = np.full(n, 1_000_000, np.int64)
    return WrittenValues(tags, balances, np.full(n, version, np.int64), keys, Ragged.empty(n))


def _apply(store: LmdbValues, writes: WrittenValues) -> None:
    """Write as a plan does, without the state's blobs."""
    before = store.position()
    if not store.apply(before, (before[0] + 1, "bench"), *items_of(nearly_sorted(writes))):
        raise SystemExit("another process writes the file")


def build(folder: Path, accounts: int) -> None:
    """Write the accounts in plans, in the order of their numbers."""
    store = LmdbValues(folder)
    begun = time.perf_counter()
    for start in range(0, accounts, _LOADED):
        _apply(store, _writes(np.arange(start, min(start + _LOADED, accounts)), start))
    print(f"{accounts:,} accounts in {time.perf_counter() - begun:.0f} s, {_size(folder)}")


def run(folder: Path, accounts: int, plans: int, transfers: int) -> None:
    """Read and write the keys of plans; print what each took, and the median of the later half."""
    _cold(folder)
    store, rng, rows = LmdbValues(folder), np.random.default_rng(time.time_ns()), list[Spent]()
    for plan in range(plans):
        keys = np.unique(rng.integers(0, accounts, 2 * transfers))
        writes = _writes(rng.permutation(keys), plan)
        before = Spent.now()
        position = store.position()
        values = ShardValues(ValuesState(*position), MemoryBlobs(), store)
        found = values.read(writes.key)
        if not (found.tag == p.INT).all():
            raise SystemExit(f"{folder} does not have these accounts; build it")
        loaded = Spent.now()
        _apply(store, writes)
        rows.append(Spent.now().since(before))
        read = loaded.since(before)
        print(f"plan {plan:3}: {_row(rows[-1], transfers)}; reading {read.clock_s:.2f} s")
    later = rows[len(rows) // 2 :]
    print(f"median : {_row(Spent(*map(median, zip(*later, strict=True))), transfers)}")
    print(_size(folder))


def _row(spent: Spent, transfers: int) -> str:
    """Print counters for each transfer."""
    return (
        f"{transfers / spent.clock_s:9,.0f} transfers/s, {spent.cpu_s / transfers * 1e6:6.2f} µs, "
        f"pages read {spent.read / PAGE / transfers:.3f}, written "
        f"{spent.written / PAGE / transfers:.3f}, faults {spent.faults / transfers:.3f} each, "
        f"{spent.read / PAGE / spent.clock_s:8,.0f} pages/s"
    )


def _cold(folder: Path) -> None:
    """Take the files out of the page cache, as far as no process maps them."""
    os.sync()
    for path in _files(folder):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def _size(folder: Path) -> str:
    """Return how much the files take on the disk."""
    return f"files of {sum(path.stat().st_blocks * 512 for path in _files(folder)) / 1e6:,.0f} MB"


@contextmanager
def _limited(memory_mb: int) -> Iterator[Path]:
    """A memory cgroup of that size within the one of this process, whose limits stay."""
    rows = [line.split(":", 2) for line in _OWN.read_text(encoding="ascii").splitlines()]
    own = next(path for _, controllers, path in rows if controllers == "memory")
    group = _CGROUPS / own.lstrip("/") / f"streamydb-bench-{os.getpid()}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(f"{memory_mb << 20}", encoding="ascii")
        yield group
    finally:
        group.rmdir()


def _run_limited(given: argparse.Namespace) -> None:
    """Run in a process that joins the cgroup before it begins."""
    os.sync()
    with _limited(given.memory_mb) as group:
        own = [f"--{name}={getattr(given, name)}" for name in ("accounts", "plans", "transfers")]
        python = [sys.executable, "-m", "bench.keys", "run", str(given.folder), "--memory-mb=0"]
        joins = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
        subprocess.run(["sh", "-c", joins, str(group), *python, *own], check=True)


def disk(folder: Path) -> None:
    """Read random pages of the largest file past the page cache."""
    path = max(_files(folder), key=lambda found: found.stat().st_size)
    pages = path.stat().st_size // PAGE
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    ends = time.perf_counter() + _DISK_S

    def reads(seed: int) -> int:
        rng, count = random.Random(seed), 0  # noqa: S311 - not for secrets
        with mmap.mmap(-1, PAGE) as buffer:
            while time.perf_counter() < ends:
                os.preadv(descriptor, [buffer], rng.randrange(pages) * PAGE)
                count += 1
        return count

    for depth in (1, 16, 32):
        ends = time.perf_counter() + _DISK_S
        with ThreadPoolExecutor(depth) as threads:
            count = sum(threads.map(reads, range(depth)))
        print(f"{depth:2} at a time: {count / _DISK_S:,.0f} pages of 4 KiB a second")
    os.close(descriptor)


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser("bench.keys", description=__doc__)
    parser.add_argument("command", choices=("build", "run", "disk"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--accounts", type=int, default=30_000_000)
    parser.add_argument("--memory-mb", type=int, default=3_200, help="0: no limit")
    parser.add_argument("--plans", type=int, default=12)
    parser.add_argument("--transfers", type=int, default=200_000)
    given = parser.parse_args()
    if given.command == "build":
        build(given.folder, given.accounts)
    elif given.command == "disk":
        disk(given.folder)
    elif given.memory_mb:
        _run_limited(given)
    else:
        run(given.folder, given.accounts, given.plans, given.transfers)


if __name__ == "__main__":
    main()
