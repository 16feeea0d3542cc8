"""How fast a read model follows: `python -m bench.follow` prints changes a second, on real Kafka.

Changes of transfers between 100,000 accounts, two a transfer, four partitions; against only reading
the same records (the baseline) in the same run, by turns. Old versions are collected meanwhile.
Beside the rates it prints processor time, all threads of the client of Kafka included and the
broker not, which depends less on what else the machine does; and how many changes one core follows.

`--without-kafka` follows prepared records: the steps of following and of reads, against taking the
records apart.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka import Message
from msgspec import Raw

from streamydb.errors import StreamyError
from streamydb.kafka import create
from streamydb.kafka.appender import TopicAppender
from streamydb.kafka.changes import BATCH_RECORDS_MAX, FetchedRecords, KafkaSource, TopicState
from streamydb.kafka.columns import RecordColumns
from streamydb.kafka.reader import Span
from streamydb.local.broker import EmbeddedBroker
from streamydb.read_model import Follower, ReadModel, core, follower
from streamydb.read_model.runs import Runs
from streamydb.read_model.store import Store
from streamydb.read_model.warmup import warm_up
from streamydb.records import (
    Change,
    ChangeOrigin,
    ChangeTransaction,
    Resolved,
    encode_change,
    encode_resolved,
)
from streamydb.records.ranges import ScanRange
from streamydb.settings import Settings

ACCOUNTS = 100_000
TRANSFERS = 300_000
PARTITIONS = 4
BATCH = 20_000
TURNS = 3
KEPT = 1_000
READS = 2_000


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


class Cost(NamedTuple):
    """Changes a second, and microseconds of processor time for one."""

    rate: float
    cpu_us: float


def timed(work: Callable[[], int]) -> Cost:
    """The cost of some work that returns how many records it has read."""
    begun, cpu = time.perf_counter(), time.process_time()
    count = work()
    assert count >= 2 * TRANSFERS, count
    took, cpu = time.perf_counter() - begun, time.process_time() - cpu
    return Cost(2 * TRANSFERS / took, 1e6 * cpu / (2 * TRANSFERS))


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


class Prepared:
    """A `streamydb.kafka.changes.ChangesTopic` of records that are there at once."""

    def __init__(self) -> None:
        """Make the records."""
        self.ends = dict.fromkeys(range(PARTITIONS), 0)
        self.messages: list[Message] = []
        for number, key, value in records():
            at = self.ends[number]
            self.messages.append(Message(partition=number, offset=at, key=key, value=value))
            self.ends[number] += 1
        self._at = 0

    def describe(self) -> TopicState:
        """The topic."""
        return TopicState("prepared", False, {n: Span(0, end) for n, end in self.ends.items()})

    def assign(self, positions: Mapping[int, int]) -> None:
        """Begin with the first record."""
        del positions
        self._at = 0

    def fetch(self, timeout_s: float) -> FetchedRecords:
        """The next records, as many as come from Kafka at most."""
        del timeout_s
        found = self.messages[self._at : self._at + BATCH_RECORDS_MAX]
        self._at += len(found)
        return FetchedRecords(RecordColumns.of(found), {})

    def close(self) -> None:
        """Nothing to close."""


class Clock:
    """Processor time of functions in their threads while they are watched, in seconds, by name."""

    def __init__(self) -> None:
        """Begin with none."""
        self.spent: dict[str, float] = {}

    def watched(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with its time noted."""

        def timed(*args: Any, **options: Any) -> Any:
            begun = time.thread_time()
            try:
                return function(*args, **options)
            finally:
                self.spent[name] = self.spent.get(name, 0.0) + time.thread_time() - begun

        return timed

    def line(self, count: int) -> str:
        """Microseconds of each for one of ``count``."""
        return ", ".join(f"{name} {1e6 * s / count:.2f}" for name, s in self.spent.items())


STAGES: Final = (
    (KafkaSource, "fetch", "fetch"),
    (follower, "plan", "plan"), (core, "recognised", "of it decode"),
    (Store, "apply", "apply"), (Store, "_add", "of it sort and add"),
    (Runs, "settle", "merge and collect"), (Store, "_put_runs", "put"),
)  # fmt: skip
"""Functions by their module or class, and what the bench calls them."""


def watch() -> Clock:
    """Watch the stages."""
    clock = Clock()
    for owner, name, title in STAGES:
        setattr(owner, name, clock.watched(title, getattr(owner, name)))
    return clock


def without_kafka() -> None:
    """Follow prepared records; print processor time, against only taking the records apart."""
    source = Prepared()
    settings = Settings(database="bank", bootstrap="127.0.0.1:1")
    clock = watch()
    with tempfile.TemporaryDirectory(prefix="streamydb-follow-") as home:
        for turn in range(TURNS):
            clock.spent.clear()
            begun = time.process_time()
            for message in source.messages:
                message.key(), message.value(), message.partition(), message.offset()
            apart = time.process_time()
            folder = Path(home) / f"model-{turn}"
            with ReadModel.open(folder, "bank", write=True) as model:
                following = Follower(
                    model, settings, retention_s=0, retention_seqs=KEPT, source=source
                )
                while model.latest().seq < TRANSFERS:
                    following.step(0)
                count, done = len(source.messages), time.process_time()
                took, base = (done - apart) / count, (apart - begun) / count
                print(
                    f"following {1e6 * took:.2f} us a change, {took / base:.1f} times taking it "
                    f"apart ({1e6 * base:.2f}): {clock.line(count)}"
                )
                reads(model)


def reads(model: ReadModel) -> None:
    """Print processor time of reads."""
    rng = random.Random(2)  # noqa: S311 - reproducible choices
    keys = [f"acct/{rng.randrange(ACCOUNTS)}" for _ in range(READS)]
    clock = Clock()

    def opened() -> None:
        with model.snapshot() as shown:
            shown.get(keys[0])

    with model.snapshot() as snapshot:
        for name, read in (
            ("get", snapshot.get),
            ("16 keys", lambda key: snapshot.get_many([key] * 16)),
            ("scan of 100", lambda key: snapshot.scan(ScanRange(start=key), limit=100)),
            ("snapshot and get", lambda _: opened()),
        ):
            one = clock.watched(name, lambda read=read: [read(key) for key in keys])
            one()
    print(f"reads, us: {clock.line(READS)}")


def main() -> None:
    """Write the records, then read them and follow them by turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without-kafka", action="store_true", help="follow prepared records")
    if parser.parse_args().without_kafka:
        without_kafka()
        return
    with tempfile.TemporaryDirectory(prefix="streamydb-follow-") as home:
        broker = EmbeddedBroker(Path(home) / "kafka").start()
        try:
            settings = Settings(database="bank", bootstrap=broker.bootstrap)
            names = create(settings.client_config(), "bank", changes_partitions=PARTITIONS)
            with TopicAppender(settings.client_config(), names.changes, StreamyError) as appender:
                for number, key, value in records():
                    appender.append(value, key=key, partition=number)
            warm_up()
            clock = watch()
            runs = []
            for turn in range(TURNS):
                read = timed(partial(read_only, settings, names.changes))
                clock.spent.clear()
                runs.append((read, timed(partial(follow, settings, Path(home) / f"{turn}"))))
                print(f"following, us a change in its thread: {clock.line(2 * TRANSFERS)}")
        finally:
            broker.stop()
    for name, told in (("changes/s", "rate"), ("us of processor time a change", "cpu_us")):
        pairs = [(getattr(read, told), getattr(followed, told)) for read, followed in runs]
        reading, following = (statistics.median(each) for each in zip(*pairs, strict=True))
        ratio = statistics.median(mine / other for other, mine in pairs)
        print(f"{name}: reading {reading:,.2f}, following {following:,.2f}, {ratio:.2f} of it")
    print(f"changes a second that one core follows: {1e6 / following:,.0f}")


if __name__ == "__main__":
    main()
