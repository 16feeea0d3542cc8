"""YCSB with transactions of several operations, as in Q-Store.

Qadah, Gupta, Sadoghi: "Q-Store: Distributed, Multi-partition Transactions via Queue-oriented
Execution and Communication", EDBT 2020; records and Zipf as in YCSB (Cooper et al., SoCC 2010).
A partition is a slice of the keys by the database's own hash, so with as many shards as partitions
a transaction on several partitions is one on several shards.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from bench.literature.driver import StudyOptions, answer, session
from bench.literature.judging import (
    Answered,
    Asked,
    Base,
    Changed,
    Invariant,
    LastValues,
    invariant,
    number_of,
)
from bench.workload import KEYS_A_LOAD, Zipf
from streamydb.cli.phases import Phases
from streamydb.errors import ConfigurationError
from streamydb.frames.hashing import hash_ragged
from streamydb.frames.table import Ragged

__all__ = ["Records", "YcsbJudge", "YcsbOptions", "loading", "partitions_of", "ycsb"]

Ints = npt.NDArray[np.int64]
PREFIX: Final = "user/"
_BLIND, _COUNTED = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class YcsbOptions(StudyOptions):
    """What to measure; see `streamydb bench ycsb --help`."""

    copy_limit: bool = True
    keys: int = 100_000
    operations: int = 10
    read_share: float = 0.5
    thetas: tuple[float, ...] = (0.0, 0.9)
    partitions: int = 4
    multi_share: float = 0.5
    value_bytes: int = 100

    def cases(self) -> dict[str, Records]:
        """What is measured: blind puts and read-modify-writes with each theta."""
        table = partitions_of(self.keys, self.partitions)
        return {
            f"{name}, theta {theta:g}": Records(self, table, theta, counted=counted)
            for name, counted in (("puts", False), ("read-modify-write", True))
            for theta in self.thetas
        }


def partitions_of(keys: int, partitions: int) -> Ints:
    """The numbers of keys by partition, (partitions, n): equally many of each, in chance order.

    Raises:
        ConfigurationError: there are too few keys.
    """
    names = Ragged.of([f"{PREFIX}{number}".encode() for number in range(keys)])
    places = (hash_ragged(names) % np.uint64(partitions)).astype(np.int64)
    groups = [np.flatnonzero(places == number) for number in range(partitions)]
    least = min(map(len, groups))
    if least == 0:
        raise ConfigurationError(f"{keys} keys are too few for {partitions} partitions")
    return np.stack([group[:least] for group in groups])


class Records:
    """Transactions on different records, some reads and some writes, of one partition or two."""

    def __init__(self, options: YcsbOptions, table: Ints, theta: float, *, counted: bool) -> None:
        """Draw records of `table`; `counted`: writes are read-modify-writes by a procedure.

        Raises:
            ConfigurationError: a transaction has more operations than a partition has keys.
        """
        partitions, size = table.shape
        if options.operations > size:
            raise ConfigurationError(
                f"{options.operations} operations on different keys need partitions of as many "
                f"keys: take more than {options.keys:,} keys or fewer than {partitions} partitions"
            )
        self._options, self._table, self._counted = options, table, counted
        self._rng = np.random.default_rng(options.seed)
        self._zipf = Zipf(size, theta, self._rng)
        self._data = "v" * options.value_bytes
        self.changes_each = options.operations * (1 - options.read_share)

    def payloads(self, first: int, count: int) -> list[bytes]:
        """Make transactions; see `Workload.payloads`."""
        keys = self._keys(count).tolist()
        reads = (self._rng.random((count, self._options.operations))
                 < self._options.read_share).tolist()  # fmt: skip
        make = self._call if self._counted else self._puts
        rows = zip(range(first, first + count), keys, reads, strict=True)
        return [make(*row) for row in rows]

    def _keys(self, count: int) -> Ints:
        """Numbers of keys, (count, operations), all different within a transaction."""
        partitions, size = self._table.shape
        k = self._options.operations
        home = self._rng.integers(0, partitions, count)
        several = self._rng.random(count) < self._options.multi_share
        away = (home + self._rng.integers(1, max(2, partitions), count)) % partitions
        parts = np.repeat(home[:, None], k, axis=1)
        parts[:, k // 2 :] = np.where(several, away, home)[:, None]
        ranks = self._zipf.draw(count * k).reshape(count, k)
        for column in range(1, k):
            while True:
                same = (parts[:, :column] == parts[:, column, None]) & (
                    ranks[:, :column] == ranks[:, column, None]
                )
                again = same.any(axis=1)
                if not again.any():
                    break
                ranks[again, column] = (ranks[again, column] + 1) % size
        found: Ints = self._table[parts, ranks]
        return found

    def _puts(self, number: int, keys: list[int], reads: list[bool]) -> bytes:
        value = {"n": number, "data": self._data}
        named = [f"{PREFIX}{key}" for key in keys]
        return msgspec.json.encode(
            {
                "id": f"t{number}",
                "updates": [
                    {"op": "put", "key": key, "value": value}
                    for key, only in zip(named, reads, strict=True) if not only
                ],
                "reads": [key for key, only in zip(named, reads, strict=True) if only],
            }
        )  # fmt: skip

    def _call(self, number: int, keys: list[int], reads: list[bool]) -> bytes:
        named = [f"{PREFIX}{key}" for key in keys]
        read = [key for key, only in zip(named, reads, strict=True) if only]
        written = [key for key, only in zip(named, reads, strict=True) if not only]
        args = {"reads": read, "writes": written, "data": self._data}
        call = {"procedure": "ycsb.update", "args": args, "keys": written, "reads": read}
        return msgspec.json.encode({"id": f"t{number}", "call": call})


def loading(options: YcsbOptions, first: int) -> Iterator[bytes]:
    """Transactions that put all records, numbered from `first`."""
    value = {"n": 0, "data": "v" * options.value_bytes}
    for number, low in enumerate(range(0, options.keys, KEYS_A_LOAD), first):
        keys = range(low, min(options.keys, low + KEYS_A_LOAD))
        puts = [{"op": "put", "key": f"{PREFIX}{key}", "value": value} for key in keys]
        yield msgspec.json.encode({"id": f"t{number}", "updates": puts})


class YcsbJudge(Base):
    """Runs the transactions again in the order of their seqs, on numbers.

    What each one read must be what the last one before it wrote, and so must what is left in the
    end. A read-modify-write counts its records up, so that a lost update shows (as in YCSB+T, Dey
    et al., ICDE Workshops 2014).
    """

    needs_log = True

    def __init__(self) -> None:
        """Nothing is known."""
        self._asked: dict[int, array[int]] = {}
        self._answers: list[tuple[int, int, array[int]]] = []
        self._odd: list[str] = []
        self._values = LastValues()

    def asked(self, transaction: Asked) -> None:
        """Keep a transaction as numbers: kind, what a put writes, count of reads, all keys."""
        number = number_of(transaction.id)
        call = transaction.call
        if call:
            reads, writes = call["reads"], call["keys"]
        else:
            reads = transaction.reads
            writes = [update["key"] for update in transaction.updates]
        keys = [int(key.removeprefix(PREFIX)) for key in (*reads, *writes)]
        if not keys:
            return
        kind = _COUNTED if call else _BLIND
        written = transaction.updates[0]["value"]["n"] if transaction.updates else number
        self._asked[number] = array("q", [kind, written, len(reads), *keys])

    def answered(self, result: Answered) -> None:
        """Keep what a transaction read."""
        number = number_of(result.id)
        if number not in self._asked:
            return
        if not result.committed:
            self._odd.append(f"{result.id} is {result.status}: {result.code}")
            return
        try:
            seen = result.returned if result.returned is not None else [
                value["n"] for value in result.reads.values()
            ]  # fmt: skip
            self._answers.append((result.seq, number, array("q", seen)))
        except (TypeError, KeyError):
            self._odd.append(f"{result.id} read no records: {str(result.reads)[:80]}")

    def changed(self, change: Changed) -> None:
        """Take over a record."""
        if change.key.startswith(PREFIX):
            self._values.take(change)

    def invariants(self) -> list[Invariant]:
        """Reads, and what is left."""
        state: dict[int, int] = {}
        wrong = list(self._replay(state))
        left = {key: value["n"] for key, value in self._values.items()}
        expected = {f"{PREFIX}{key}": n for key, n in state.items()}
        differing = [
            f"{key} has {left.get(key)}, not {expected.get(key)}"
            for key in left.keys() | expected.keys() if left.get(key) != expected.get(key)
        ]  # fmt: skip
        return [
            invariant("every transaction commits", len(self._asked), self._odd),
            invariant("a read shows the last write before it", len(self._answers), wrong),
            invariant("records are what the last writes left", len(expected), differing),
        ]

    def _replay(self, state: dict[int, int]) -> Iterator[str]:
        """Run everything on `state`; say where a read was wrong."""
        for seq, number, seen in sorted(self._answers):
            kind, written, reads, *keys = self._asked[number]
            expected = [state.get(key, 0) for key in keys[:reads]]
            if expected != seen.tolist():
                yield f"t{number} (seq {seq}) read {seen.tolist()}, not {expected}"
            for key in keys[reads:]:
                state[key] = written if kind == _BLIND else state.get(key, 0) + 1


def ycsb(options: YcsbOptions, phases: Phases) -> dict[str, Any]:
    """Measure transactions of reads and puts, and of reads and read-modify-writes.

    Raises:
        BenchError: something failed.
    """
    cases = options.cases()
    with session(options, phases) as measured:
        measured.deploy("ycsb")
        measured.append(
            loading(options, measured.run.appender.appended), f"Loading {options.keys:,} records"
        )
        measured.throughput(cases)
        measured.latency(next(iter(cases.values())))
        found = measured.prove(YcsbJudge())
        leading, workload = next(iter(cases.items()))
        limit = measured.run.copy_limit(measured.ranges[leading][0][0], workload.changes_each)
        parameters = {
            "keys": options.keys, "operations": options.operations,
            "read_share": options.read_share, "thetas": list(options.thetas),
            "partitions": options.partitions, "multi_share": options.multi_share,
            "value_bytes": options.value_bytes,
        }  # fmt: skip
        return answer("ycsb", measured, found, parameters, limit)
