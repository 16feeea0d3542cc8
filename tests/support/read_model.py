"""What the tests of the read model share: records, a small topic, and reading it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest
from msgspec import UNSET, Raw

from streamydb.frames.addresses import address_of, bytes_at
from streamydb.frames.table import Ragged
from streamydb.read_model import Follower, ReadModel, runs
from streamydb.read_model.rows import Ints, Row, pack_row, row_bytes, unpack_row
from streamydb.records import (
    Change,
    ChangeOrigin,
    ChangeTransaction,
    encode_change,
    encode_resolved,
)
from streamydb.records import Resolved as ResolvedRecord
from streamydb.settings import Settings
from tests.support.memory_topic import MemorySource, MemoryTopic

SETTINGS = Settings(database="bank", bootstrap="127.0.0.1:1")


def change(
    seq: int, value: str | None, ts_ms: int | None = None, db: str = "bank",
    *, expires_ms: int | None = None,
) -> bytes:  # fmt: skip
    """A change record; ``value`` None: a deletion."""
    return encode_change(
        Change(
            "d" if value is None else "u", Raw(b"null"), Raw((value or "null").encode()),
            10 * seq if ts_ms is None else ts_ms, ChangeOrigin("streamydb", db, 0, seq, seq),
            ChangeTransaction(f"id{seq}", 1, 1), UNSET if expires_ms is None else expires_ms,
        )
    )  # fmt: skip


def write(topic: MemoryTopic, partition: int, seq: int, key: str, value: str | None) -> None:
    """Append a change."""
    topic.append(partition, key.encode(), change(seq, value))
    if value is None:
        topic.append(partition, key.encode(), None)


def resolve(topic: MemoryTopic, seq: int, partitions: Iterable[int] | None = None) -> None:
    """Append a resolved record to partitions, by default to all."""
    value = encode_resolved(ResolvedRecord(seq, 10 * seq, {"0": seq + 1}))
    for number in topic.records if partitions is None else partitions:
        topic.append(number, None, value)


def follow(
    model: ReadModel, topic: MemoryTopic, retention_s: float = 1e6, retention_seqs: float = 0
) -> Follower:
    """A follower that has read everything there is."""
    follower = Follower(
        model, SETTINGS, retention_s=retention_s, retention_seqs=retention_seqs,
        source=MemorySource(topic),
    )  # fmt: skip
    while follower.step(0):
        pass
    return follower


def example() -> MemoryTopic:
    """Two partitions: a in 0, b in 1; a is deleted at 3, b written at 2 and 4."""
    made = MemoryTopic(2)
    write(made, 0, 1, "a", "1")
    write(made, 1, 2, "b", '"two"')
    resolve(made, 2)
    write(made, 0, 3, "a", None)
    write(made, 1, 4, "b", "[4]")
    resolve(made, 5)
    return made


class Held(NamedTuple):
    """Rows at their addresses, and the buffers that they lie in."""

    buffers: list[Any]
    rows: Ints

    def read(self, rows: Iterable[int]) -> list[Row]:
        """What lies at addresses."""
        return [unpack_row(bytes_at(int(row), int(row_bytes(row)))) for row in rows]


def held(rows: Iterable[Row]) -> Held:
    """Put rows into memory."""
    data = Ragged.of([*(pack_row(*row) for row in rows), bytes(8)])
    return Held([data.data], data.offsets[:-2] + address_of(data.data))


def small_parts(patch: pytest.MonkeyPatch, rng: random.Random) -> None:
    """Let parts, merges and commits be so small that little data has many of them."""
    patch.setattr(runs, "PART_BYTES", rng.choice([1, 100, 400, 1 << 18]))
    patch.setattr(runs, "STEP_BYTES", rng.choice([1, 1_000, 3_000, 1 << 23]))
    patch.setattr(runs, "COMMIT_BYTES", rng.choice([1, 2_000, 1 << 24]))
    patch.setattr(runs, "COMMIT_RATIO", rng.choice([1, 4, 32]))
    patch.setattr(runs, "RATIO", rng.choice([1, 2, 8]))
    patch.setattr(runs, "SHARE", rng.choice([0, 0.25, 1]))
    patch.setattr(runs, "RUNS_MAX", rng.choice([1, 3, 12]))


def nothing_superfluous(patch: pytest.MonkeyPatch) -> None:
    """Let the runs be merged to one, and all be removed that can be."""
    patch.setattr(runs, "RATIO", 1 << 40)
    patch.setattr(runs, "SHARE", 0)


def rows_in(model: ReadModel) -> list[Row]:
    """All versions that are stored, run by run."""
    with model.store.environment.reading() as txn:
        found = model.store._listed(txn)
        return [
            unpack_row(bytes_at(row, int(row_bytes(row))))
            for run in found
            for row in runs._rows(run).tolist()
        ]


def check_stored(model: ReadModel) -> None:
    """Require that no version is stored twice, and no part that is not in the list."""
    names = [(row.key, row.seq) for row in rows_in(model)]
    assert len(set(names)) == len(names)
    with model.store.environment.reading() as txn:
        parts = sum(map(len, model.store._listed(txn)))
        assert txn.stat(model.store.tables.versions)["entries"] == parts


def rewritten(model: ReadModel, change: Callable[[list[Row]], list[Row]]) -> None:
    """Change what is stored behind the store's back; it is one run then."""
    rows = sorted(change(rows_in(model)), key=lambda row: (row.key, -row.seq))

    def work(txn: Any) -> None:
        stored = model.store._runs(txn, 1 << 60)
        for run in stored.runs:
            stored._remove(run)
        stored.runs = []
        placed = held(rows)
        stored.add(placed.rows)
        model.store._put_runs(txn, stored)

    model.store.environment.write(work)


def drained(follower: Follower, seq: int) -> None:
    """Let a follower of a real topic run until its read model has a seq; close it."""
    from streamydb.testing.database import wait_for

    model = follower._model

    def there() -> bool:
        follower.step(0.1)
        return model.latest().seq >= seq

    try:
        wait_for(there, f"the read model at seq {seq}")
    finally:
        follower.close()
