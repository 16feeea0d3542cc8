"""What a campaign does to a pipeline with two gears, and how often these have shifted."""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil
from confluent_kafka import Consumer, Producer, TopicPartition

from streamydb.errors import RecordError, StreamyError
from streamydb.kafka import TopicNames
from streamydb.kafka.connection import watermarks
from streamydb.local.launcher import wait_until
from streamydb.records.control import Handover, decode_message, encode_message
from streamydb.testing.database import Database, is_daemon, wait_for
from tests.campaign.world import World
from tests.support.bank import transfers

__all__ = [
    "crowd_the_log", "delete_the_base", "double_hand_overs", "end_the_jvm", "halt_the_worker",
    "kill_the_daemon", "kill_the_worker", "put_back_an_old_base", "real_time_leads", "shifts",
]  # fmt: skip

_LEADS: Final = "the real-time gear leads"
_LEAD_S: Final = 60.0
_SHIFT_S: Final = 120.0
_CROWD: Final = (8_000, 25_000)
_CROWD_S: Final = 2.0
_CROWDS_MAX: Final = 10
_ACCOUNTS: Final = 100_000
_KILLS_MAX: Final = 3


def real_time_leads(pipeline: Database) -> int:
    """Return the process of the real-time gear's worker; 0: that gear does not lead."""
    gear = pipeline.status().gear
    return 0 if gear is None or gear.worker is None else gear.worker


def shifts(pipeline: Database) -> int:
    """Return how often the real-time gear of a pipeline has taken the lead."""
    return pipeline.log_file.read_text(errors="replace").count(_LEADS)


def _leading(world: World, but: Collection[int] = ()) -> Database | None:
    """Wait a while until the real-time gear of a pipeline leads, and return the pipeline.

    ``but``: workers that are gone, though it may not be known yet.
    """

    def found() -> list[Database]:
        return [each for each in world.pipelines if real_time_leads(each) not in (0, *but)]

    wait_until(lambda: bool(found()), _LEAD_S)
    return next(iter(found()), None)


def _with_worker(
    world: World, act: Callable[[psutil.Process], None], but: Collection[int] = ()
) -> int:
    """Do something to the worker of a real-time gear that leads; return it, or 0: none leads."""
    pipeline = _leading(world, but)
    worker = 0 if pipeline is None else real_time_leads(pipeline)
    if not worker:
        return 0
    try:
        act(psutil.Process(worker))
    except psutil.NoSuchProcess:
        return 0
    return worker


def kill_the_worker(world: World, rng: random.Random) -> int:
    """SIGKILL the worker of the real-time gear while it leads, perhaps again when it is back."""
    killed: set[int] = set()
    for _ in range(rng.randint(1, _KILLS_MAX)):
        killed.add(_with_worker(world, lambda worker: worker.kill(), killed))
    return len(killed - {0})


def halt_the_worker(world: World, rng: random.Random) -> int:
    """SIGSTOP it for some seconds; it goes on though others lead by then."""

    def halt(worker: psutil.Process) -> None:
        worker.suspend()
        try:
            threading.Event().wait(rng.uniform(0.5, 12.0))
        finally:
            with suppress(psutil.NoSuchProcess):
                worker.resume()

    return int(_with_worker(world, halt) > 0)


def kill_the_daemon(world: World, _: random.Random) -> int:
    """SIGKILL the daemon that has forked it, what that has forked, and all that the daemon is a
    fork of: the other gear's, too.
    """

    def kill(worker: psutil.Process) -> None:
        first = worker.parent()
        above = None if first is None else first.parent()
        if above is not None and is_daemon(above):
            first = above
        for process in () if first is None else (first, *first.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                process.kill()

    return int(_with_worker(world, kill) > 0)


def end_the_jvm(world: World, _: random.Random) -> int:
    """SIGKILL the JVM of both gears; the pipeline ends of it, and is started again."""
    pipeline = _leading(world) or world
    (jvm,) = (process for process in pipeline.processes() if process.name() == "java")
    jvm.kill()
    pipeline.wait_pipeline()
    pipeline.kill_pipeline()
    pipeline.start_pipeline()
    return 1


def _base(pipeline: Database) -> Path:
    return pipeline.folder / "local"


def delete_the_base(world: World, rng: random.Random) -> int:
    """Delete the files of the base under the real-time gear, perhaps with its worker."""
    _leading(world)
    world.delete_local_files()
    if rng.random() < 0.5:
        _with_worker(world, lambda worker: worker.kill())
    return 1


def put_back_an_old_base(world: World, _: random.Random) -> int:
    """Kill the pipelines, and give them the local files of an earlier kill, if any were kept.

    Right after they were deleted there are no newer ones to keep.
    """
    kept, local = world.folder / "kept-local", _base(world)
    for pipeline in world.pipelines:
        pipeline.kill_pipeline()
    newer = world.folder / "newer-local"
    if local.exists():
        shutil.copytree(local, newer, ignore_dangling_symlinks=True)
    if there := kept.exists():
        shutil.rmtree(local, ignore_errors=True)
        kept.rename(local)
    if newer.exists():
        newer.rename(kept)
    for pipeline in world.pipelines:
        pipeline.start_pipeline()
    return int(there)


def crowd_the_log(world: World, rng: random.Random) -> int:
    """Append more than the real-time gear executes in time, so that the gears shift twice.

    On a quiet machine it keeps up with the first thousands, so more come until it does not.
    """
    pipeline = _leading(world)
    if pipeline is None:
        return 0

    def shifted() -> bool:
        return not real_time_leads(pipeline)

    for _ in range(_CROWDS_MAX):
        count = rng.randint(*_CROWD)
        made = transfers(count, seed=rng.getrandbits(32), accounts=_ACCOUNTS, prefix="crowd")
        world.load(txn for txn in made if "asserts" not in txn)
        if wait_until(shifted, _CROWD_S):
            break
    wait_for(shifted, "the lead of the micro-batch gear", _SHIFT_S)
    wait_for(lambda: _leading(world) is not None, "the lead of the real-time gear", _SHIFT_S)
    return 1


def double_hand_overs(world: World, rng: random.Random) -> int:
    """Append requests for a hand-over again: doubled, late, and to gears that have gone."""
    told = _hand_overs(world)
    chosen = rng.sample(told, min(len(told), rng.randint(1, 6)))
    producer = Producer(world.settings.client_config())
    for message in chosen:
        for _ in range(rng.randint(1, 3)):
            producer.produce(TopicNames(world.name).control, encode_message(message))
    producer.flush(60)
    return len(chosen)


def _hand_overs(world: World) -> Sequence[Handover]:
    """Return the requests for a hand-over that were made so far."""
    topic = TopicNames(world.name).control
    consumer = Consumer({**world.settings.client_config(), "group.id": "campaign"})
    found: list[Handover] = []
    try:
        low, high = watermarks(consumer, topic, 0, 30)
        consumer.assign([TopicPartition(topic, 0, low)])
        at = low
        while at < high:
            for record in consumer.consume(1_000, timeout=5):
                at = (record.offset() or 0) + 1
                with suppress(RecordError, StreamyError):
                    message = decode_message(record.value())
                    found += [message] if isinstance(message, Handover) else []
    finally:
        consumer.close()
    return found
