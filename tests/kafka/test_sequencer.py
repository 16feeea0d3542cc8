"""Appending, waiting for results and writing markers, on a real broker."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from streamydb.kafka import TopicNames, create, describe, grow
from streamydb.kafka.producer import Appended, AppendError, AppendUnknownError, Producer
from streamydb.kafka.results import ResultReader, ResultTimeoutError
from streamydb.limits import TRANSACTION_BYTES_MAX
from streamydb.local.broker import EmbeddedBroker
from streamydb.pipeline import markers
from streamydb.pipeline.markers import MarkerLoop
from streamydb.records import Marker, decode_marker
from streamydb.records.result import Duplicate
from streamydb.settings import Settings
from streamydb.testing.database import wait_for
from streamydb.verify.oracle.order import LogRecord, order, released

WAIT_S = 30.0


def settings_of(bootstrap: str, database: str, partitions: int = 1) -> Settings:
    """Create a database and return its settings."""
    settings = Settings(bootstrap=bootstrap, database=database, partitions=partitions)
    create(settings.client_config(), database, partitions=partitions)
    return settings


def put(number: int) -> dict[str, Any]:
    """Return a transaction."""
    return {"id": f"t{number}", "updates": [{"op": "put", "key": "k", "value": number}]}


def ends(settings: Settings) -> tuple[int, ...]:
    """Return the end of each partition of the log."""
    name = TopicNames(settings.database).transactions
    return describe(settings.client_config(), settings.database)[name].ends


def read_log(settings: Settings) -> dict[int, list[LogRecord]]:
    """Read the whole log."""
    name = TopicNames(settings.database).transactions
    log: dict[int, list[LogRecord]] = {number: [] for number in range(len(ends(settings)))}
    left = {number for number, end in enumerate(ends(settings)) if end}
    consumer = Consumer(
        {**settings.client_config(), "group.id": "reader", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(name, number, 0) for number in log])
    while left:
        message = consumer.poll(WAIT_S)
        assert message is not None
        if message.error() is not None:
            left.discard(message.partition())
            continue
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        log[partition].append(LogRecord(offset, message.timestamp()[1], message.value()))
    consumer.close()
    return log


def markers_in(settings: Settings) -> list[Marker]:
    """Return all markers in the log."""
    found = [decode_marker(r.value) for part in read_log(settings).values() for r in part]
    return [marker for marker in found if marker is not None]


def wait_released(settings: Settings, transactions: int, initial: int) -> None:
    """Wait until as many transactions are released."""

    def done() -> bool:
        log = read_log(settings)
        everything = order(log, initial)
        return len(everything) == transactions and released(log, initial) == everything

    wait_for(done, f"{transactions} transactions to be released")


def wait_idle(loop: MarkerLoop, settings: Settings) -> None:
    """Wait until a loop has read the whole log and nothing waits."""

    def idle() -> bool:
        read = loop.records
        before = ends(settings)
        loop_idle = loop.state == "idle"
        return loop_idle and read == loop.records and before == ends(settings)

    wait_for(idle, "the marker loop to rest")


class TestProducer:
    """Appending."""

    def test_append(self, bootstrap: str, database: str) -> None:
        settings = settings_of(bootstrap, database, 3)
        with Producer(settings) as producer:
            before_ms = time.time_ns() // 1_000_000
            first = producer.append(put(1), partition=2)
            second = producer.append(json.dumps(put(2)).encode(), partition=2)
        assert isinstance(first, Appended)
        assert (first.partition, first.offset, second.offset) == (2, 0, 1)
        log = read_log(settings)
        assert [r.append_ms for r in log[2]] == [first.timestamp_ms, second.timestamp_ms]
        assert first.timestamp_ms >= before_ms
        assert json.loads(log[2][0].value or b"") == put(1)

    def test_one_key_one_partition(self, bootstrap: str, database: str) -> None:
        settings = settings_of(bootstrap, database, 4)
        with Producer(settings) as producer:
            places = {producer.append(put(n), key="user-7").partition for n in range(5)}
        assert len(places) == 1

    def test_asynchronously(self, bootstrap: str, database: str) -> None:
        settings = settings_of(bootstrap, database)
        called: list[tuple[Appended | None, AppendError | None]] = []

        with Producer(settings) as producer:
            for number in range(100):
                producer.append_async(put(number), lambda *told: called.append(told))
            futures = [producer.submit(put(number)) for number in range(100)]
            assert [future.result(WAIT_S).offset for future in futures] == list(range(100, 200))
        assert [told[0].offset for told in called if told[0]] == list(range(100))
        assert ends(settings) == (200,)

    def test_many_keep_their_order(self, bootstrap: str, database: str) -> None:
        settings = settings_of(bootstrap, database)
        with Producer(settings) as producer:
            places = list(producer.append_many((put(n) for n in range(5_000)), window=100))
        assert [place.offset for place in places] == list(range(5_000))
        ids = [json.loads(r.value or b"")["id"] for r in read_log(settings)[0]]
        assert ids == [f"t{n}" for n in range(5_000)]

    def test_a_full_queue_waits_and_loses_nothing(self, bootstrap: str, database: str) -> None:
        settings = settings_of(bootstrap, database)
        big = {"id": "big", "updates": [{"op": "put", "key": "k", "value": "v" * 200_000}]}
        with Producer(settings, linger_ms=50) as producer:
            assert len(list(producer.append_many(big for _ in range(600)))) == 600
        assert ends(settings) == (600,)

    @pytest.mark.fault(
        14, "the largest record, and a larger one than a batch", "appended; refused before the log"
    )
    def test_the_largest_transaction_fits_and_what_no_batch_takes_does_not(
        self, bootstrap: str, database: str
    ) -> None:
        settings = settings_of(bootstrap, database)
        with Producer(settings) as producer:
            producer.append(json.dumps(put(1)).encode().ljust(TRANSACTION_BYTES_MAX))
            told = producer.append_many([put(2), b" " * 1_100_000, put(3)])
            assert next(told).offset == 1
            with pytest.raises(AppendError, match="at most 900000 bytes: split it"):
                next(told)
            producer.flush()
        assert ends(settings) in {(2,), (3,)}  # those under way may be in the log

    def test_anything_is_appended(self, bootstrap: str, database: str) -> None:
        settings = settings_of(bootstrap, database)
        with Producer(settings) as producer:
            producer.append(b"\xff\x00 no transaction")
        assert ends(settings) == (1,)

    def test_a_partition_that_does_not_exist(self, bootstrap: str, database: str) -> None:
        settings = settings_of(bootstrap, database)
        with Producer(settings) as producer:
            producer.append(put(1))
            with pytest.raises(AppendError, match="fewer partitions"):
                producer.append(put(2), partition=9)

    def test_a_database_that_does_not_exist(self, bootstrap: str, database: str) -> None:
        settings = Settings(bootstrap=bootstrap, database=database)
        with (
            Producer(settings, timeout_s=2) as producer,
            pytest.raises(AppendError, match=r"streamydb create|append the same bytes"),
        ):
            producer.append(put(1))

    def test_no_broker(self, database: str) -> None:
        settings = Settings(bootstrap="127.0.0.1:1", database=database)
        producer = Producer(settings, timeout_s=1)
        with pytest.raises(AppendUnknownError, match="append the same bytes again"):
            producer.append(put(1))
        producer.close()
        producer.close()
        with pytest.raises(AppendError, match="closed"):
            producer.append(put(2))


class TestResultReader:
    """Waiting for verdicts; the pipeline is played by the test."""

    @staticmethod
    def write(settings: Settings, *results: dict[str, Any]) -> None:
        """Write results as a pipeline does."""
        import confluent_kafka

        client = confluent_kafka.Producer(dict(settings.client_config()))
        for result in results:
            name = TopicNames(settings.database).results
            client.produce(name, json.dumps(result).encode(), key=result["id"])
        assert client.flush(WAIT_S) == 0

    @staticmethod
    def result(seq: int, name: str | None, **more: Any) -> dict[str, Any]:
        """Return a result."""
        source = {"partition": 0, "offset": seq - 1}
        verdict = {"ts_ms": 0, "status": "committed", "reads": {}, "failed": [], "code": None}
        return {"id": name, "seq": seq, **verdict, "source": source, **more}

    def test_by_position(self, bootstrap: str, database: str) -> None:
        settings = settings_of(bootstrap, database)
        self.write(settings, self.result(1, "old"))
        with ResultReader(settings) as reader, ThreadPoolExecutor(1) as pool:
            early = pool.submit(reader.wait_at, 0, 1, WAIT_S)
            self.write(settings, self.result(2, "a"), self.result(3, None), self.result(4, "b"))
            assert early.result(WAIT_S).seq == 2
            assert reader.wait_at(0, 1, WAIT_S).id == "a"
            assert reader.wait_at(0, 2, WAIT_S).seq == 3
            assert reader.wait_at(0, 3, WAIT_S).id == "b"
            with pytest.raises(ResultTimeoutError, match="no result for partition 0, offset 0"):
                reader.wait_at(0, 0, 0.01)

    def test_each_result_is_delivered_once(self, bootstrap: str, database: str) -> None:
        settings = settings_of(bootstrap, database)
        again = {"duplicate": {"seq": 3, "ts_ms": 0, "partition": 0, "offset": 2}}
        with ResultReader(settings, remembered=2) as reader:
            one = self.result(1, "a")
            self.write(settings, one, self.result(2, "b"), one)
            self.write(settings, self.result(1, "a", **again))
            third = reader.wait_at(0, 2, WAIT_S)
            assert (third.seq, third.duplicate) == (1, Duplicate(3, 0, 0, 2))
            assert reader.wait_at(0, 1, WAIT_S).id == "b"
            assert reader.duplicates == 1
            with pytest.raises(ResultTimeoutError):  # only two are remembered
                reader.wait_at(0, 0, 0.01)

    def test_what_is_no_result_is_passed_over(self, bootstrap: str, database: str) -> None:
        settings = settings_of(bootstrap, database)
        with ResultReader(settings) as reader:
            self.write(settings, self.result(1, "a"), {"id": "x"})
            wait_for(lambda: "Not a result record" in str(reader.error), "the error to show")
            with pytest.raises(ResultTimeoutError, match=r"offset 1 of .* Not a result record"):
                reader.wait_at(0, 1, 0)
            self.write(settings, self.result(3, "b"))
            assert (reader.wait_at(0, 2, WAIT_S).seq, reader.wait_at(0, 0, 0).seq) == (3, 1)
            assert reader.error is None

    def test_closing_tells_those_who_wait(self, bootstrap: str, database: str) -> None:
        reader = ResultReader(settings_of(bootstrap, database))
        with ThreadPoolExecutor(1) as pool:
            never = pool.submit(reader.wait_at, 0, 0, WAIT_S)
            reader.close()
            with pytest.raises(ResultTimeoutError, match="closed"):
                never.result(WAIT_S)

    def test_a_missing_topic(self, bootstrap: str, database: str) -> None:
        with pytest.raises(Exception, match="streamydb create"):
            ResultReader(Settings(bootstrap=bootstrap, database=database))


class TestMarkerLoop:
    """Markers."""

    @pytest.mark.fault(
        7, "some partitions get no record", "released by epoch markers, then silence"
    )
    def test_every_transaction_is_released_and_then_nothing_is_written(
        self, bootstrap: str, database: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(markers, "REFRESH_S", 1.0)
        settings = settings_of(bootstrap, database, 3)
        with Producer(settings) as producer, MarkerLoop(settings) as loop:
            for number in range(5):
                producer.append(put(number), partition=number % 3)
                wait_released(settings, number + 1, 3)
            wait_idle(loop, settings)
            written = (loop.rounds, loop.records, ends(settings))
            # Nothing can be waited for where nothing must happen: the loop's progress is the clock.
            looked = loop.refreshes
            wait_for(lambda: loop.refreshes >= looked + 2, "the loop to look twice more")
            assert (loop.rounds, loop.records, ends(settings)) == written
            assert 0 < loop.rounds <= 12

    def test_one_partition_gets_no_marker(
        self, bootstrap: str, database: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(markers, "REFRESH_S", 1.0)
        settings = settings_of(bootstrap, database)
        with Producer(settings) as producer, MarkerLoop(settings) as loop:
            producer.append(put(1))
            wait_for(lambda: loop.refreshes >= 2, "the loop to look twice")
            assert ends(settings) == (1,)
            assert (loop.rounds, loop.state) == (0, "idle")

    def test_two_at_once_are_harmless(self, bootstrap: str, database: str) -> None:
        settings = settings_of(bootstrap, database, 4)
        with Producer(settings) as producer, MarkerLoop(settings) as one, MarkerLoop(settings):
            for _ in producer.append_many(put(number) for number in range(2_000)):
                pass
            wait_released(settings, 2_000, 4)
            wait_idle(one, settings)
            names = {marker.sequencer for marker in markers_in(settings)}
            assert names
            producer.append(put(5_000), partition=3)
            wait_released(settings, 2_001, 4)

    def test_a_backlog_is_closed_by_a_sequencer_that_comes_later(
        self, bootstrap: str, database: str
    ) -> None:
        settings = settings_of(bootstrap, database, 2)
        with Producer(settings) as producer:
            assert len(list(producer.append_many(map(put, range(5_000))))) == 5_000
        log = read_log(settings)
        before = [(r.partition, r.offset) for r in order(log, 2)]
        with MarkerLoop(settings):
            wait_released(settings, 5_000, 2)
        after = [(r.partition, r.offset) for r in order(read_log(settings), 2)]
        assert after == before

    def test_restarts_write_nothing_once_all_is_released(
        self, bootstrap: str, database: str
    ) -> None:
        settings = settings_of(bootstrap, database, 2)
        with Producer(settings) as producer, MarkerLoop(settings) as loop:
            for number in range(3):
                producer.append(put(number))
                wait_released(settings, number + 1, 2)
            wait_idle(loop, settings)
        for _ in range(2):
            before = ends(settings)
            with MarkerLoop(settings) as loop:
                wait_for(lambda loop=loop: loop.state == "idle", "the loop")  # type: ignore[misc]
                wait_idle(loop, settings)
            assert loop.rounds == 0
            assert ends(settings) == before

    @pytest.mark.fault(
        17, "partitions added under a running sequencer", "they join the order by markers"
    )
    @pytest.mark.parametrize("initial", [1, 2])
    def test_partitions_that_are_added_join(
        self, bootstrap: str, database: str, initial: int
    ) -> None:
        settings = settings_of(bootstrap, database, initial)
        with Producer(settings) as producer, MarkerLoop(settings) as loop:
            producer.append(put(0), partition=0)
            wait_released(settings, 1, initial)
            wait_for(lambda: loop.partitions == initial, "the loop")
            wait_idle(loop, settings)
            grow(settings.client_config(), database, initial + 2)
            wait_for(
                lambda: any(m.partitions == initial + 2 for m in markers_in(settings)), "a round"
            )
            wait_idle(loop, settings)
            last = ends(settings)
            assert all(last), "every partition has its marker"
        with Producer(settings) as producer, MarkerLoop(settings):
            producer.append(put(1), partition=initial + 1)
            wait_released(settings, 2, initial)

    @pytest.mark.fault(
        17, "partitions added while no sequencer runs", "they join the order by markers"
    )
    def test_growth_while_no_sequencer_runs(self, bootstrap: str, database: str) -> None:
        settings = settings_of(bootstrap, database, 1)
        with Producer(settings) as producer:
            producer.append(put(0))
        grow(settings.client_config(), database, 3)
        with Producer(settings) as producer:
            producer.append(put(1), partition=2)
            with MarkerLoop(settings):
                wait_released(settings, 2, 1)

    def test_a_wild_marker_is_passed_by_one_at_a_time(self, bootstrap: str, database: str) -> None:
        settings = settings_of(bootstrap, database, 2)
        hour = time.time_ns() // 1_000_000 + 3_600_000
        wild = json.dumps({"marker": hour, "partitions": 2, "sequencer": "wild"}).encode()
        with Producer(settings) as producer:
            producer.append(wild, partition=0)
        with Producer(settings) as producer, MarkerLoop(settings) as loop:
            producer.append(put(1), partition=0)
            producer.append(put(2), partition=1)
            wait_released(settings, 2, 2)
            wait_idle(loop, settings)
            assert 3_000_000 < loop.skew_ms <= 3_600_100
            assert max(m.marker for m in markers_in(settings)) < hour + 100

    def test_a_wild_marker_far_from_the_end_is_found(self, bootstrap: str, database: str) -> None:
        settings = settings_of(bootstrap, database, 2)
        hour = time.time_ns() // 1_000_000 + 3_600_000
        wild = json.dumps({"marker": hour, "partitions": 2, "sequencer": "wild"}).encode()
        with Producer(settings) as producer:
            producer.append(wild, partition=0)
            list(producer.append_many(json.dumps(put(n)).encode() for n in range(6_000)))
        with MarkerLoop(settings):
            wait_released(settings, 6_000, 2)

    def test_a_broker_that_is_killed_and_comes_back(
        self, private_broker: Callable[..., EmbeddedBroker], database: str
    ) -> None:
        """The loop goes on, and so does a producer of another log, in order."""
        with private_broker() as broker:
            settings = settings_of(broker.bootstrap, database, 2)
            other = settings_of(broker.bootstrap, f"{database}-other")
            with (
                MarkerLoop(settings) as loop, Producer(settings) as producer,
                Producer(other) as many,
            ):  # fmt: skip
                producer.append(put(0))
                many.append(put(0))
                wait_released(settings, 1, 2)
                broker.kill()
                waiting = producer.submit(put(1))
                futures = [many.submit(put(number)) for number in range(1, 100)]
                wait_for(lambda: loop.state == "degraded", "the loop to notice")
                assert loop.last_error
                broker.start()
                waiting.result(WAIT_S)
                offsets = [future.result(WAIT_S).offset for future in futures]
                wait_released(settings, 2, 2)
                wait_for(lambda: loop.last_error is None, "the loop to recover")
            assert offsets == list(range(1, 100))
            assert ends(other) == (100,)

    def test_stopping_is_prompt_and_repeatable(self, bootstrap: str, database: str) -> None:
        for loop in (
            MarkerLoop(settings_of(bootstrap, database, 2)),
            MarkerLoop(Settings(bootstrap=bootstrap, database=f"{database}-missing")),
            MarkerLoop(Settings(bootstrap=bootstrap, database=database)),
        ):
            loop.stop()
            assert loop.state == "stopped"
        loop = MarkerLoop(Settings(bootstrap=bootstrap, database=f"{database}-missing")).start()
        wait_for(lambda: loop.state == "degraded", "the loop to miss the topic")
        assert loop.last_error
        loop.stop()
        loop.stop()
        assert loop.state == "stopped"
