"""A read model on a real broker: transactions, gaps, expiry, new topics, kill -9."""

from __future__ import annotations

import signal
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewPartitions
from msgspec import Raw

from streamydb.errors import InvariantViolation
from streamydb.kafka import TopicNames, TopicsError, changes, create, delete, describe
from streamydb.kafka.changes import KafkaSource
from streamydb.kafka.clients import administrator
from streamydb.local.broker import EmbeddedBroker
from streamydb.local.launcher import LocalProcess
from streamydb.read_model import (
    ChangesExpiredError,
    Follower,
    ReadModel,
    SourceError,
    StoreMismatchError,
    StoreMissingError,
    copy_to,
)
from streamydb.records import (
    Change,
    ChangeOrigin,
    ChangeTransaction,
    Resolved,
    encode_change,
    encode_resolved,
)
from streamydb.settings import Settings
from streamydb.testing.database import wait_for

PARTITIONS = 4
STEP_S = 0.2


class Feed:
    """Writes the changes of a database of its own."""

    def __init__(self, bootstrap: str, database: str) -> None:
        """Create the topics."""
        self.settings = Settings(bootstrap=bootstrap, database=database)
        self.topic = TopicNames(database).changes
        self.seq = 0
        self.create()

    def create(self) -> None:
        """Create the topics."""
        config = self.settings.client_config()
        create(config, self.settings.database, changes_partitions=PARTITIONS)

    def producer(self, **options: str) -> Producer:
        """A producer that keeps the order."""
        config = {**self.settings.client_config(), "enable.idempotence": "true", **options}
        return Producer(config)

    def write(self, producer: Producer, key: str, value: str | None) -> None:
        """Write a change of the next seq, and the tombstone of a deletion."""
        self.seq += 1
        change = Change(
            "d" if value is None else "u", Raw(b"null"), Raw((value or "null").encode()),
            1000 + self.seq, ChangeOrigin("streamydb", self.settings.database, 0, 0, self.seq),
            ChangeTransaction(f"t{self.seq}", 1, 1),
        )  # fmt: skip
        partition = zlib.crc32(key.encode()) % 2
        producer.produce(self.topic, encode_change(change), key, partition)
        if value is None:
            producer.produce(self.topic, None, key, partition)
        producer.poll(0)

    def resolve(self, producer: Producer) -> None:
        """Resolve everything so far."""
        value = encode_resolved(Resolved(self.seq, 1000 + self.seq, {"0": self.seq}))
        for partition in range(PARTITIONS):
            producer.produce(self.topic, value, partition=partition)

    def load(self, count: int, keys: int = 100) -> None:
        """Write many changes; every thousand are resolved."""
        producer = self.producer()
        for number in range(count):
            self.write(producer, f"k{self.seq % keys}", None if number % 7 == 3 else str(number))
            if number % 1000 == 999:
                self.resolve(producer)
        self.resolve(producer)
        assert producer.flush(60) == 0

    def spans(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """First and end offsets."""
        topic = describe(self.settings.client_config(), self.settings.database)[self.topic]
        return topic.beginnings, topic.ends

    def expire(self, offset: int) -> None:
        """Delete the first records of partition 0, as retention does."""
        admin = administrator(self.settings.client_config())
        where = TopicPartition(self.topic, 0, offset)
        for future in admin.delete_records([where]).values():
            future.result(30)

    def open(self, folder: Path) -> ReadModel:
        """The writer of a read model."""
        return ReadModel.open(folder, self.settings.database, write=True)

    def follow(self, model: ReadModel) -> Follower:
        """A follower that has caught up."""
        follower = Follower(model, self.settings, retention_seqs=10**9)
        try:
            catch_up(follower, lambda: model.latest().seq == self.seq)
        except BaseException:
            follower.close()
            raise
        return follower


def catch_up(follower: Follower, done: Callable[[], bool]) -> None:
    """Take steps until something is so."""

    def step() -> bool:
        follower.step(STEP_S)
        return done()

    wait_for(step, "catching up", 60)


def digests(model: ReadModel, count: int = 7) -> list[str]:
    """Digests at a few seqs."""
    last = model.latest().seq
    found = []
    for number in range(count):
        with model.snapshot(last * number // (count - 1)) as snapshot:
            found.append(snapshot.digest())
    return found


@pytest.fixture
def feed(bootstrap: str, database: str) -> Iterator[Feed]:
    made = Feed(bootstrap, database)
    yield made
    delete(made.settings.client_config(), database)


@pytest.mark.fault(23, "gaps and control records in the changes", "the same state")
def test_what_lies_in_the_topic_counts_whatever_became_of_kafkas_transaction(
    feed: Feed, tmp_path: Path
) -> None:
    """All who read changes see the same, Spark too; control records are passed."""
    producer = feed.producer(**{"transactional.id": f"{feed.settings.database}-writer"})
    producer.init_transactions(30)
    producer.begin_transaction()
    feed.write(producer, "a", "1")
    feed.write(producer, "b", '"é"')
    feed.resolve(producer)
    producer.commit_transaction(30)
    producer.begin_transaction()
    feed.write(producer, "a", None)
    feed.resolve(producer)
    producer.flush(30)
    producer.abort_transaction(30)
    with feed.open(tmp_path / "model") as model:
        follower = feed.follow(model)
        ends = list(feed.spans()[1])
        catch_up(follower, lambda: positions(model) == ends)
        feed.seq = 2
        producer.begin_transaction()
        feed.write(producer, "a", None)  # again, with equal bytes, as all that is written twice
        feed.resolve(producer)
        producer.commit_transaction(30)
        again = list(feed.spans()[1])
        catch_up(follower, lambda: positions(model) == again)
        follower.close()
        with model.snapshot(2) as snapshot:
            found = {entry.key: entry.value for entry in snapshot.scan()}
            assert found == {"a": b"1", "b": '"é"'.encode()}
        with model.snapshot(3) as snapshot:
            assert [entry.key for entry in snapshot.scan()] == ["b"]
            assert [line.version for line in snapshot.history("a")] == [3, 1]
        assert model.latest().offsets == {0: 3}
        assert model.seq_at(1002) == 2


def positions(model: ReadModel) -> list[int]:
    """How far a read model has read."""
    return [part.position for _, part in sorted(model.store.progress().parts.items())]


@pytest.mark.fault(
    23, "changes deleted before a slow reader came", "refused; it begins with a copy"
)
def test_what_has_expired_is_refused_and_a_copy_goes_on(feed: Feed, tmp_path: Path) -> None:
    feed.load(500)
    with feed.open(tmp_path / "good") as good, feed.open(tmp_path / "slow") as slow:
        feed.follow(good).close()
        feed.follow(slow).close()
        feed.load(500)
        feed.follow(good).close()
        feed.expire(feed.spans()[1][0])
        feed.load(500)
        with pytest.raises(ChangesExpiredError, match="--copy-from"):
            feed.follow(slow)
        assert slow.latest().seq == 500
        with feed.open(tmp_path / "new") as new, pytest.raises(ChangesExpiredError):
            feed.follow(new)
        copy_to(good, tmp_path / "copy")
        feed.follow(good).close()
        with feed.open(tmp_path / "copy") as copy:
            assert copy.latest().seq == 1000
            feed.follow(copy).close()
            assert digests(copy) == digests(good)
            assert len(set(digests(copy))) == 7


@pytest.mark.parametrize("position", [3, 10_000])
def test_a_position_outside_the_topic_is_never_moved_into_it(feed: Feed, position: int) -> None:
    """Records may expire between the look at the topic and the first fetch."""
    feed.load(100)
    feed.expire(5)
    source = KafkaSource(feed.settings.client_config(), feed.topic)
    source.assign({0: position})
    read: list[int] = []

    def refused() -> bool:
        try:
            read.extend(record.offset() for record in source.fetch(STEP_S).records)
        except ChangesExpiredError as error:
            assert f"{feed.topic}, partition 0" in str(error)  # noqa: PT017 - raised at some time
            return True
        return False

    wait_for(refused, "the refusal", 30)
    assert read == []
    source.assign({0: 5})
    wait_for(lambda: len(source.fetch(STEP_S).records) > 0, "records", 30)
    source.close()


@pytest.mark.long
def test_a_broker_that_goes_away_is_waited_for(
    private_broker: Callable[..., EmbeddedBroker], database: str, tmp_path: Path
) -> None:
    broker = private_broker().start()
    feed = Feed(broker.bootstrap, database)
    feed.load(100)
    with feed.open(tmp_path / "model") as model:
        follower = feed.follow(model)
        broker.kill()
        for _ in range(5):
            assert follower.step(STEP_S) == 0
        broker.start()
        feed.load(100)
        catch_up(follower, lambda: model.latest().seq == 200)
        follower.close()
        broker.kill()
        with pytest.raises(TopicsError, match="does not answer"):
            feed.follow(model)


def test_more_partitions_are_refused_while_following(
    feed: Feed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "PARTITIONS_CHECK_S", 0.0)
    feed.load(10)
    with feed.open(tmp_path / "model") as model:
        follower = feed.follow(model)
        admin = administrator(feed.settings.client_config())
        grown = admin.create_partitions([NewPartitions(feed.topic, PARTITIONS + 1)])
        grown[feed.topic].result(30)

        def refused() -> bool:
            try:
                follower.step(STEP_S)
            except SourceError as error:
                assert "has 5 now" in str(error)  # noqa: PT017 - raised at some time
                return True
            return False

        wait_for(refused, "the refusal", 30)
        with pytest.raises(StoreMismatchError, match="it has 5"):
            follower.step(STEP_S)
        follower.close()


@pytest.mark.fault(30, "the changes topic made anew under a read model", "refused")
def test_a_topic_that_was_made_again_is_refused(feed: Feed, tmp_path: Path) -> None:
    feed.load(10)
    with feed.open(tmp_path / "model") as model:
        feed.follow(model).close()
        delete(feed.settings.client_config(), feed.settings.database)
        with pytest.raises(SourceError, match="does not exist"):
            feed.follow(model)
        feed.create()
        feed.load(20)
        with pytest.raises(StoreMismatchError, match="made anew"):
            feed.follow(model)
        assert model.latest().seq == 10


@pytest.mark.parametrize("beginning", [0, 5])
def test_two_histories_in_one_topic_are_refused(feed: Feed, tmp_path: Path, beginning: int) -> None:
    """That of a log that has lost its end behind that of what it has lost; or the beginning, which
    is written last, where a pipeline went on in a topic that was made anew.
    """
    producer = feed.producer()
    feed.seq = beginning
    for number in range(5):
        feed.write(producer, f"k{number}", "1")
    feed.resolve(producer)
    feed.seq = 0
    for number in range(4):
        feed.write(producer, f"k{number}", "2")
    feed.resolve(producer)
    assert producer.flush(30) == 0
    with feed.open(tmp_path / "model") as model:
        follower = Follower(model, feed.settings, retention_seqs=10**9)
        with pytest.raises(InvariantViolation), closing(follower):
            catch_up(follower, lambda: positions(model) == list(feed.spans()[1]))


@pytest.mark.fault(23, "SIGKILL of a loading read model", "the same state")
def test_a_follower_that_is_killed_again_and_again_loses_nothing(
    feed: Feed, tmp_path: Path
) -> None:
    kill_again_and_again(feed, tmp_path, rounds=2, records=6_000)


@pytest.mark.long
def test_a_follower_with_many_records_is_killed_many_times(feed: Feed, tmp_path: Path) -> None:
    kill_again_and_again(feed, tmp_path, rounds=8, records=20_000)


def kill_again_and_again(feed: Feed, tmp_path: Path, rounds: int, records: int) -> None:
    """Kill a follower in the middle of its records, start it again, compare it with another."""
    feed.load(records, keys=3000)
    command = [
        sys.executable, "-m", "streamydb.cli", "read-model", "--database", feed.settings.database,
        "--bootstrap", feed.settings.bootstrap_servers, "--folder", str(tmp_path / "killed"),
        "--retention-seqs", "inf",
    ]  # fmt: skip
    for _ in range(rounds):
        process = LocalProcess("read-model", command, tmp_path / "log")
        wait_until_at(feed, tmp_path / "killed", process)
        feed.load(records // 2, keys=3000)
        process.kill()
        assert process.exit_code == -signal.SIGKILL
    process = LocalProcess("read-model", command, tmp_path / "log")
    feed.load(1_000, keys=3000)  # the last one may have read all before: this one must
    wait_until_at(feed, tmp_path / "killed", process)
    assert process.stop(30) == 0
    with feed.open(tmp_path / "whole") as whole, feed.open(tmp_path / "killed") as killed:
        feed.follow(whole).close()
        assert killed.latest() == whole.latest()
        assert digests(killed) == digests(whole)


def wait_until_at(feed: Feed, folder: Path, process: LocalProcess) -> None:
    """Wait until another process has brought a read model to the last seq."""
    process.wait_until(lambda: seq_in(folder, feed) >= feed.seq, 120)


def seq_in(folder: Path, feed: Feed) -> int:
    """The latest seq of a read model, 0 while there is none."""
    try:
        with ReadModel.open(folder, feed.settings.database) as model:
            return model.latest().seq
    except StoreMissingError:
        return 0
