"""A loaded database of a campaign: all its parts, a bank, clients whose histories are judged."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import psutil
from confluent_kafka import Consumer, TopicPartition

from streamydb.kafka import TopicNames
from streamydb.kafka.connection import watermarks
from streamydb.pipeline.standby.agreement import Agreement
from streamydb.read_model.verify import verify
from streamydb.testing.database import Database, TestingError, wait_for
from tests.support.bank import transfers
from tests.support.heap import keeps_no_records
from tests.support.machine import Clock, Disk, can_mount, has_compiler, small_disk
from tests.support.network import proxied_broker
from tests.support.serving import Clients, Served, clients

LIVENESS_BOUND_S: Final = 60.0
"""Within this time after a period a new transaction has its verdict."""

_DIGESTS: Final = 500
_DISK_MB: Final = 192
_PATIENCE: Final = {
    "STREAMYDB_SERVE_VERDICT_TIMEOUT_S": "5", "STREAMYDB_SERVE_READ_TIMEOUT_S": "5",
}  # fmt: skip
_BANK_PAUSE_S: Final = 0.4
_BANK_RECORDS: Final = 20
_HOT_ACCOUNTS: Final = 50
_COOL_ACCOUNTS: Final = 1_000_000


class Bank:
    """Transfers appended past the facade, at a modest rate, whatever happens to the broker.

    With lock queues (`cool`) they hardly ever conflict: a hot key does one transaction per
    micro-batch there, and what is appended must be executed at some time.

    Attributes:
        rounds: how often some were appended.
        failure: why it ended before its time.
    """

    def __init__(self, db: Database, *, cool: bool) -> None:
        """Nothing is appended yet."""
        self._cool = cool
        self.rounds = 0
        self.failure: Exception | None = None
        self._db = db
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            while not self._ended.wait(_BANK_PAUSE_S):
                self.rounds += 1
                self._db.load(self._transfers())
        except Exception as error:  # noqa: BLE001 - told by `healthy`
            self.failure = error

    def _transfers(self) -> Iterator[Any]:
        accounts = _COOL_ACCOUNTS if self._cool else _HOT_ACCOUNTS
        made = transfers(_BANK_RECORDS, seed=self.rounds, accounts=accounts, prefix="bank")
        return (txn for txn in made if not self._cool or "asserts" not in txn)

    @contextmanager
    def open(self) -> Iterator[None]:
        """Append while the body runs."""
        self._thread.start()
        try:
            yield
        finally:
            self.end()

    def end(self) -> None:
        """Append no more."""
        self._ended.set()
        self._thread.join()


class World(Served):
    """The database, and what a campaign needs to do it harm.

    Attributes:
        grouping: how transactions are granted.
        gears: each pipeline has a real-time gear.
        bank: what is appended all the time.
        standby: a second pipeline over the log, if there is one.
        disk: where the checkpoint lies, if this machine can mount file systems.
        clock: of the broker, if there is a compiler.
    """

    def __init__(
        self, folder: Path, rng: random.Random, *, shards: int, partitions: int, grouping: str,
        gears: bool = False,
    ) -> None:  # fmt: skip
        """Nothing is started yet."""
        options = ["--grouping", grouping, "--digest-interval", str(_DIGESTS)]
        options += ["--gear", "both"] if gears else []
        super().__init__(
            folder, environment=_PATIENCE, shards=shards, partitions=partitions, options=options
        )
        self.broker, self.proxy = proxied_broker(folder / "home")
        self.standby: Database | None = None
        self.disk: Disk | None = None
        self.clock: Clock | None = Clock(folder / "clock") if has_compiler() else None
        self.grouping = grouping
        self.gears = gears
        self.bank = Bank(self, cool=grouping == "single")
        self._rng = rng
        self._lives = 0

    def start_broker(self) -> None:
        """Start the broker, with the clock that can jump."""
        if self.clock is None:
            self.broker.start()
            return
        with self.clock.preloaded():
            self.broker.start()

    @contextmanager
    def running(self, *, standby: bool, count: int) -> Iterator[Clients]:
        """Everything runs while the body does, and clients use it."""
        with self.opened(standby=standby), clients(self, count) as running:
            yield running

    @contextmanager
    def opened(self, *, standby: bool, disk: bool = True) -> Iterator[None]:
        """Everything runs while the body does; the checkpoint on a small disk of its own."""
        with ExitStack() as stack:
            if disk and can_mount():
                self.disk = stack.enter_context(small_disk(self.place.checkpoint, _DISK_MB))
            stack.enter_context(self.proxy)
            stack.callback(self.broker.kill)
            self.start_broker()
            mine = list(self.options)
            self.options += ["--bootstrap", f"127.0.0.1:{self.proxy.port}"]
            stack.enter_context(self)
            if standby:
                self.standby = stack.enter_context(self._beside(mine))
            stack.enter_context(self.bank.open())
            yield

    @contextmanager
    def _beside(self, options: Sequence[str]) -> Iterator[Database]:
        """The standby, which reaches the broker without the proxy."""
        own, self.options = self.options, list(options)
        with self.beside("standby") as other:
            self.options = own
            yield other

    @property
    def pipelines(self) -> list[Database]:
        """All of them."""
        return [self] if self.standby is None else [self, self.standby]

    def restart_failed(self) -> list[str]:
        """Start pipelines again that have ended; what they said."""
        said = []
        for pipeline in self.pipelines:
            status = pipeline.status()
            if status.state != "running":
                said.append(f"{pipeline.log_file.name}: {status.error}")
                pipeline.kill_pipeline()
                pipeline.start_pipeline()
        return said

    def live(self) -> float:
        """Have a transaction executed that nobody has sent before; after how many seconds.

        Raises:
            TestingError: there was no verdict in time.
        """
        self._lives += 1
        began = time.monotonic()

        def executed() -> bool:
            url = self._rng.choice(self.urls)
            name = f"live-{self._lives}"
            try:
                answer = httpx.put(
                    f"{url}/v1/kv/live/{self._lives}", content=b"1", timeout=10,
                    headers={"Idempotency-Key": name},
                )  # fmt: skip
            except httpx.TransportError:
                return False
            return answer.is_success and answer.status_code != 202

        wait_for(executed, "the verdict of a new transaction", LIVENESS_BOUND_S)
        return time.monotonic() - began

    def prove(self) -> int:
        """Compare everything with the log; how many transactions there are.

        Raises:
            AssertionError: something differs.
        """
        self.bank.end()
        report = self.assert_serial(timeout_s=300)
        for pipeline in self.pipelines:
            status = pipeline.status()
            assert status.alarm is None, status.alarm
            assert status.state == "running", status.error
            keeps_no_records(pipeline)
        self._digests_agree()
        for number in range(len(self.urls)):
            folder = self.folder / f"read-model-{number}"
            found = verify(folder, self.settings, self.folder / f"verified-{number}")
            assert found.differing == [], found
        return report.transactions

    def _digests_agree(self) -> None:
        """All digests of one place are the same, whoever told them, and both have told some."""
        agreement = Agreement(_DIGESTS, self.shards)
        topic = TopicNames(self.name).digests
        consumer = Consumer({**self.settings.client_config(), "group.id": "campaign"})
        place = TopicPartition(topic, 0, 0)
        consumer.assign([place])
        _, end = watermarks(consumer, topic, 0, 30)
        taken = 0
        while taken < end:
            for message in consumer.consume(1000, timeout=1):
                taken = (message.offset() or 0) + 1
                difference = agreement.take(message.key(), message.value(), live=True)
                assert difference is None, str(difference)
        consumer.close()
        assert agreement.compared or self.standby is None or end == 0, "no digest was told twice"

    def healthy(self, fault: str) -> None:
        """Nobody has ended who was not to end.

        Raises:
            TestingError: a pipeline has failed, a facade or a read model has ended, or nothing
                can be appended.
        """
        if self.bank.failure is not None:
            raise TestingError(f"after '{fault}' the bank ended: {self.bank.failure}")
        for pipeline in self.pipelines:
            status = pipeline.status()
            if status.state != "running":
                raise TestingError(f"after '{fault}' {pipeline.log_file} ended: {status.error}")
        for process in (*self.facades, *self.read_models):
            if process.exit_code is not None:
                raise TestingError(f"after '{fault}' {process.name} ended: {process.log_file}")

    def broker_processes(self) -> list[psutil.Process]:
        """The broker's process."""
        return [psutil.Process(self.broker.record.pid)]
