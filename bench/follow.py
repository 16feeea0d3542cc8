"""How fast a read model follows: `python -m bench.follow` prints changes a second, on real Kafka.

Changes of transfers between 100,000 accounts, two a transfer, four partitions; against only reading
the same records (the baseline) in the same run, by turns. Old versions are collected meanwhile.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from msgspec import Raw

from streamydb.errors import StreamyError
from streamydb.kafka import create
from streamydb.kafka.appender import TopicAppender
from streamydb.kafka.changes import KafkaSource
from streamydb.local.broker import EmbeddedBroker
from streamydb.read_model import Follower, ReadModel
from streamydb.records import (
    Change,
    ChangeOrigin,
    ChangeTransaction,
    Resolved,
    encode_change,
    encode_resolved,
)
from streamydb.settings import Settings

ACCOUNTS = 100_000
TRANSFERS = 300_000
PARTITIONS = 4
BATCH = 20_000
TURNS = 3
KEPT = 1_000


def records() -> Iterator[tuple[int, bytes | None, bytes]]:
    """Partition, key and value of what a pipeline would write, a resolved record every batch."""
    rng = random.Random(1)  # noqa: S311 - reproducible choices
    balances = dict.fromkeys(range(ACCOUNTS), 1_000)
    for seq in range(1, TRANSFERS + 1):
        for order, account in enumerate(rng.sample(range(ACCOUNTS), 2), 1):
            before, after = balances[account], balances[account] + (1 if order > 1 else -1)
            balances[account] = after
            change = Change(
                "u", Raw(b"%d" % before), Raw(b"%d" % after), seq // 40,
                ChangeOrigin("streamydb", "bank", 0, seq, seq),
                ChangeTransaction(f"t{seq}", order, 1),
            )  # fmt: skip
            yield account % PARTITIONS, b"acct/%d" % account, encode_change(change)
        if seq % BATCH == 0:
            resolved = encode_resolved(Resolved(seq, seq // 40, {"0": seq}))
            for number in range(PARTITIONS):
                yield number, None, resolved


def timed(work: Callable[[], int]) -> float:
    """Changes a second of some work that returns how many records it has read."""
    begun = time.perf_counter()
    count = work()
    assert count >= 2 * TRANSFERS, count
    return 2 * TRANSFERS / (time.perf_counter() - begun)


def read_only(settings: Settings, topic: str) -> int:
    """Read all records as a follower does, and nothing else."""
    source = KafkaSource(settings.client_config(), topic)
    source.assign(dict.fromkeys(range(PARTITIONS), 0))
    total = 2 * TRANSFERS + PARTITIONS * (TRANSFERS // BATCH)
    done = 0
    while done < total:
        done += len(source.fetch(1.0).records)
    source.close()
    return done


def follow(settings: Settings, folder: Path) -> int:
    """Follow to the last seq in a new store."""
    done = 0
    with ReadModel.open(folder, settings.database, write=True) as model:
        follower = Follower(model, settings, retention_s=0, retention_seqs=KEPT)
        while model.latest().seq < TRANSFERS:
            done += follower.step(1.0)
        follower.close()
    return done


def main() -> None:
    """Write the records, then read them and follow them by turns."""
    with tempfile.TemporaryDirectory(prefix="streamydb-follow-") as home:
        broker = EmbeddedBroker(Path(home) / "kafka").start()
        try:
            settings = Settings(database="bank", bootstrap=broker.bootstrap)
            names = create(settings.client_config(), "bank", changes_partitions=PARTITIONS)
            with TopicAppender(settings.client_config(), names.changes, StreamyError) as appender:
                for number, key, value in records():
                    appender.append(value, key=key, partition=number)
            runs = [
                (
                    timed(partial(read_only, settings, names.changes)),
                    timed(partial(follow, settings, Path(home) / f"model-{turn}")),
                )
                for turn in range(TURNS)
            ]
        finally:
            broker.stop()
    reading, following = (statistics.median(rates) for rates in zip(*runs, strict=True))
    ratio = statistics.median(followed / read for read, followed in runs)
    print(f"reading {reading:,.0f} changes/s, following {following:,.0f}, {ratio:.2f} of it")


if __name__ == "__main__":
    main()
