"""What the tests of the read model share: records, a small topic, and reading it."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Raw

from streamydb.read_model import (
    Follower,
    ReadModel,
)
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


def change(seq: int, value: str | None, ts_ms: int | None = None, db: str = "bank") -> bytes:
    """A change record; ``value`` None: a deletion."""
    return encode_change(
        Change(
            "d" if value is None else "u", Raw(b"null"), Raw((value or "null").encode()),
            10 * seq if ts_ms is None else ts_ms, ChangeOrigin("streamydb", db, 0, seq, seq),
            ChangeTransaction(f"id{seq}", 1, 1),
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


def entries_in(model: ReadModel, table: str = "versions") -> int:
    """Rows of a sub-database."""
    with model.store.environment.reading() as txn:
        return txn.stat(getattr(model.store.tables, table))["entries"]


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
