"""What a campaign does to a database: each fault begins, lasts, and is over when it returns."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import psutil
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from streamydb.kafka import TopicNames
from streamydb.kafka.connection import watermarks
from streamydb.testing.database import TestingError, wait_for
from tests.campaign import gears
from tests.campaign.world import World
from tests.support.bank import transfers
from tests.support.hostile import HOSTILE
from tests.support.machine import halted

_HOUR_MS: Final = 3_600_000
_COPIES: Final = 50
_FAILURE_S: Final = 240.0
_BACKLOG: Final = (50_000, 150_000)
_BACKLOG_ACCOUNTS: Final = 100_000
_COMMITS_ONE_OF: Final = 50


class Fault(NamedTuple):
    """A kind of fault.

    Attributes:
        name: what it is, for people.
        inject: does it and undoes it; how often it was done.
        possible: whether this world has what it needs.
        ends: pipelines may end of it, and are started again.
    """

    name: str
    inject: Callable[[World, random.Random], int]
    possible: Callable[[World], bool] = lambda _: True
    ends: bool = False


def _last(rng: random.Random, least: float = 1.0, most: float = 8.0) -> None:
    """Let a fault last."""
    threading.Event().wait(rng.uniform(least, most))


def _kill_a_pipeline(world: World, rng: random.Random) -> int:
    pipeline = rng.choice(world.pipelines)
    pipeline.kill_pipeline()
    pipeline.start_pipeline()
    return 1


def _kill_workers(world: World, rng: random.Random) -> int:
    killed = 0
    for _ in range(rng.randint(1, 3)):
        killed += world.kill_workers()
        _last(rng, 0.5, 2.0)
    return killed


def _halt(processes: Iterable[psutil.Process], rng: random.Random) -> int:
    with halted(processes) as count:
        _last(rng)
        return int(count > 0)


def _halt_a_pipeline(world: World, rng: random.Random) -> int:
    return _halt(rng.choice(world.pipelines).processes(), rng)


def _halt_the_broker(world: World, rng: random.Random) -> int:
    return _halt(world.broker_processes(), rng)


def _halt_a_server(world: World, rng: random.Random) -> int:
    process = rng.choice([*world.facades, *world.read_models])
    return _halt([psutil.Process(process.pid)], rng)


def _kill_a_server(world: World, rng: random.Random) -> int:
    number = rng.randrange(len(world.urls))
    process = rng.choice([world.facades[number], world.read_models[number]])
    process.kill()
    process.start()
    world.wait_ready(number)
    return 1


def _kill_the_broker(world: World, rng: random.Random) -> int:
    world.broker.kill()
    _last(rng, 0.0, 5.0)
    world.start_broker()
    return 1


def _restart_the_broker(world: World, _: random.Random) -> int:
    world.broker.stop()
    world.start_broker()
    return 1


def _delete_caches(world: World, _: random.Random) -> int:
    world.delete_local_files()
    return 1


def _cut(*directions: str) -> Callable[[World, random.Random], int]:
    def inject(world: World, rng: random.Random) -> int:
        world.proxy.cut(*directions)
        try:
            _last(rng, 2.0, 20.0)
            if rng.random() < 0.5:
                world.proxy.reset()
        finally:
            world.proxy.heal()
        return 1

    return inject


def _reset(world: World, rng: random.Random) -> int:
    broken = 0
    for _ in range(5):
        broken += world.proxy.reset()
        _last(rng, 0.1, 1.0)
    return broken


def _delay(world: World, rng: random.Random) -> int:
    world.proxy.delay(rng.uniform(0.05, 0.4))
    try:
        _last(rng, 5.0, 15.0)
    finally:
        world.proxy.heal()
    return 1


def _hostile(world: World, _: random.Random) -> int:
    return world.load(HOSTILE)


def _append_a_backlog(world: World, rng: random.Random) -> int:
    """So much that several tasks read pieces of it; half of the time a kill interrupts that."""
    begun = world.status().seq or 0
    count = world.load(_mostly_aborted(rng.randint(*_BACKLOG), rng.getrandbits(32)))
    if rng.random() < 0.5:
        _kill_a_pipeline(world, rng)
    wait_for(lambda: (world.status().seq or 0) >= begun + count, "its end", _FAILURE_S)
    return 1


def _mostly_aborted(count: int, seed: int) -> Iterator[Any]:
    """Transfers, of which few commit: clients watch all changes, one by one."""
    made = transfers(count, seed=seed, accounts=_BACKLOG_ACCOUNTS, prefix="backlog")
    for number, transaction in enumerate(made):
        if number % _COMMITS_ONE_OF:
            transaction["asserts"] = {"never": True}
            yield transaction
        elif "asserts" not in transaction:  # nor a list that grows, which all would wait for
            yield transaction


def _newest(world: World, topic: str, partition: int) -> list[bytes]:
    """The newest values of a partition."""
    consumer = Consumer({**world.settings.client_config(), "group.id": "campaign"})
    try:
        place = TopicPartition(topic, partition)
        low, high = watermarks(consumer, topic, partition, 30)
        place.offset = max(low, high - _COPIES)
        consumer.assign([place])
        return [m.value() or b"" for m in consumer.consume(_COPIES, timeout=3)]
    finally:
        consumer.close()


def _double_transactions(world: World, rng: random.Random) -> int:
    """As a producer would whose acknowledgements are lost."""
    topic = TopicNames(world.name).transactions
    found = _newest(world, topic, rng.randrange(world.partitions))
    return world.load(value for value in found if b'"marker"' not in value)


def _double_feedback(world: World, rng: random.Random) -> int:
    """Old feedback again, out of order."""
    topic, shard = TopicNames(world.name).feedback, rng.randrange(world.shards)
    found = _newest(world, topic, shard)
    rng.shuffle(found)
    producer = Producer({**world.settings.client_config(), "enable.idempotence": "true"})
    for value in found:
        producer.produce(topic, value, partition=shard)
    producer.flush(60)
    return len(found)


def _fence_a_producer(world: World, _: random.Random) -> int:
    """A zombie leaves half a Kafka transaction in the log; its successor fences it."""
    names, fenced = TopicNames(world.name), 0
    config: dict[str, str | int] = {**world.settings.client_config()}
    config |= {"transactional.id": "campaign", "log_level": 0}
    zombie, successor = Producer(config), Producer(config)
    zombie.init_transactions(60)
    zombie.begin_transaction()
    for number in range(3):
        zombie.produce(names.transactions, b'{"id":"zombie-%d"}' % number)
    zombie.flush(30)
    successor.init_transactions(60)
    successor.begin_transaction()
    successor.produce(names.transactions, b'{"id":"successor"}')
    successor.commit_transaction(60)
    try:
        zombie.commit_transaction(60)
    except KafkaException:
        fenced = 1
    if not fenced:
        raise TestingError("a fenced producer could commit")
    return fenced


def _jump(world: World, rng: random.Random) -> int:
    if world.clock is None:
        return 0
    world.clock.jump(rng.choice([_HOUR_MS, -_HOUR_MS, 5_000, -5_000]))
    _last(rng)
    world.clock.jump(0)
    return 2


def _hand_over(world: World, _: random.Random) -> int:
    def ready() -> bool:
        """Whoever follows now: the lead may move by itself meanwhile. A pipeline whose real-time
        gear has just ended follows for a moment, too; then nobody leads.
        """
        told = [pipeline.status() for pipeline in world.pipelines]
        leads = any(each.role == "leading" for each in told)
        return leads and any(each.role == "following" and each.ready for each in told)

    wait_for(ready, "a standby that is ready", 120)
    command = [sys.executable, "-m", "streamydb.cli", "handover", "--database", world.name]
    command += ["--bootstrap", world.broker.bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise TestingError(f"hand-over: {done.stderr}")
    return 1


def _fill_the_disk(world: World, rng: random.Random) -> int:
    """The checkpoint's disk is full: the pipeline ends, and goes on when there is space again."""
    if world.disk is None:
        return 0
    ended = world.disk.stay_full_until(lambda: world.status().state == "failed")
    try:
        wait_for(ended, "the end of a full disk", _FAILURE_S)
        _last(rng, 0.5, 2.0)
    finally:
        world.disk.free()
    return 1


def _of_gears(name: str, inject: Callable[[World, random.Random], int]) -> Fault:
    return Fault(name, inject, lambda world: world.gears)


FAULTS: Final = (
    Fault("SIGKILL of a pipeline: driver, JVM, workers", _kill_a_pipeline),
    Fault("SIGKILL of Python workers", _kill_workers),
    Fault("SIGSTOP of a pipeline", _halt_a_pipeline),
    Fault("SIGKILL of the broker", _kill_the_broker),
    Fault("clean restart of the broker", _restart_the_broker),
    Fault("SIGSTOP of the broker", _halt_the_broker),
    Fault("SIGKILL of a facade or a read model", _kill_a_server),
    Fault("SIGSTOP of a facade or a read model", _halt_a_server),
    Fault("caches deleted under the pipeline", _delete_caches),
    Fault("network cut", _cut()),
    Fault("network cut, to the broker only", _cut("to_broker")),
    Fault("network cut, from the broker only", _cut("to_client")),
    Fault("connections reset", _reset),
    Fault("network delayed", _delay),
    Fault("hostile records", _hostile),
    Fault("backlog of 100,000 transactions", _append_a_backlog, lambda w: w.grouping == "planner"),
    Fault("transactions appended twice", _double_transactions),
    Fault("feedback doubled and shuffled", _double_feedback),
    Fault("producer fenced in a Kafka transaction", _fence_a_producer),
    Fault("clock of the broker jumped", _jump, lambda world: world.clock is not None),
    Fault("hand-over to the other pipeline", _hand_over, lambda world: world.standby is not None),
    Fault("disk of the checkpoint full", _fill_the_disk, lambda w: w.disk is not None, ends=True),
    _of_gears("SIGKILL of the real-time gear's worker", gears.kill_the_worker),
    _of_gears("SIGSTOP of the real-time gear's worker", gears.halt_the_worker),
    _of_gears("SIGKILL of the daemon and the workers of both gears", gears.kill_the_daemon),
    _of_gears("SIGKILL of the JVM of both gears", gears.end_the_jvm),
    _of_gears("base deleted under the real-time gear", gears.delete_the_base),
    _of_gears("base of an earlier time put back", gears.put_back_an_old_base),
    _of_gears("more load than the real-time gear takes", gears.crowd_the_log),
    _of_gears("requests for a hand-over doubled and late", gears.double_hand_overs),
)
"""All kinds."""
