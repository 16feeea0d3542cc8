"""Real faults under load: what runs is killed, what is stored is taken away, what is sent is
hostile, and our own code fails (FAULTS 15, 16, 43).

Each test ends with a serial replay of the log: nothing lost, nothing twice, nothing different. The
short forms
are part of `make test`; the long ones run with `make test-faults`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from streamydb.kafka.clients import administrator
from streamydb.testing.database import Database, wait_for
from tests.support.bank import transfers
from tests.support.faulty import POISONED, TRIED_TWICE, fails, load, poisoned, progressed
from tests.support.hostile import HOSTILE

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1500)]


def kill_the_driver(folder: Path, rounds: int, shards: int) -> None:
    rng = random.Random(rounds)
    with Database(folder, shards=shards) as db:
        for number in range(rounds):
            with load(db, number):
                progressed(db, rng.randint(1, 400))
                db.kill_pipeline()
            db.start_pipeline()
        db.load(transfers(20, seed=77, prefix="after"))
        assert db.assert_serial().ok


@pytest.mark.fault(
    1, "SIGKILL of driver, JVM and workers at random moments, ten times, one and two shards"
)
@pytest.mark.long
@pytest.mark.parametrize("shards", [1, 2])
def test_sigkill_of_the_driver_ten_times(
    tmp_path: Path, shards: int, injected: Callable[..., None]
) -> None:
    kill_the_driver(tmp_path, rounds=10, shards=shards)
    injected(10)


def delete_unread(db: Database) -> None:
    """What retention does to a log that nobody has read in time."""
    admin = administrator({"bootstrap.servers": db.broker.bootstrap})
    everything = [TopicPartition(f"{db.name}.transactions", p, -1) for p in range(db.partitions)]
    for future in admin.delete_records(everything).values():
        future.result(30)


def fails_on_some(db: Database) -> None:
    """Our own code fails on four transactions, which have a verdict nevertheless."""
    db.load(transfers(50))
    db.load(POISONED)
    db.load(transfers(100, seed=2))
    report = db.assert_serial()
    assert report.faults == len(POISONED)
    assert report.deadletters.matched == len(POISONED)
    said = db.log_file.read_text()
    assert said.count("LookupError") >= 3
    assert sum(map(int, re.findall(r"ruled (\d+) transactions", said))) == len(POISONED)
    assert "unreadable" not in said


def goes_on_without(db: Database, injected: Callable[..., None]) -> None:
    """Workers, their daemons and the local files go under load, in which hostile records are."""
    with load(db, 1):
        progressed(db, 100)
        killed = db.kill_workers()
        assert killed > 0
        progressed(db, 100)
        everything = db.kill_workers(daemons=True)
        assert everything >= 2  # a daemon and its worker
        injected(killed + everything, 2)
        progressed(db, 100)
        db.delete_local_files()
        progressed(db, 100)
        injected(db.load(HOSTILE), 12)
        progressed(db, 100)
    assert db.assert_serial().ok


@pytest.mark.fault(1, "SIGKILL of driver, JVM and workers at a random moment under load")
@pytest.mark.fault(2, "SIGKILL of all Python workers under load, and of the daemons that fork them")
@pytest.mark.fault(4, "SIGKILL of the broker")
@pytest.mark.fault(12, "records that are no transactions between the others under load")
@pytest.mark.fault(
    15,
    "our code patched to raise in every Python of the pipeline",
    "aborted: internal, dead letter, alarm; equal to the serial replay",
)
@pytest.mark.fault(
    16,
    "delete_records on the log before it was read",
    "stops loudly with the runbook; nothing skipped",
)
@pytest.mark.fault(19, "checkpoint gone while records come")
@pytest.mark.fault(31, "SIGKILL at a random moment under load, started again with --plan-limit=100")
@pytest.mark.fault(
    43, "a pipeline without those faults rebuilds from the log", "the same verdicts and outputs"
)
def test_a_database_survives_kills_faults_of_ours_a_rebuild_and_lost_records(
    tmp_path: Path, injected: Callable[..., None]
) -> None:
    """One database for all: a start of a broker or a pipeline costs more than most faults."""
    poisons = ExitStack()
    poisons.enter_context(poisoned(tmp_path))
    with poisons, Database(tmp_path, shards=2, partitions=3, master=TRIED_TWICE) as db:
        fails_on_some(db)
        injected(len(POISONED), 15)
        with load(db, 0):
            progressed(db, random.Random(1).randint(1, 200))
            db.kill_pipeline()
            injected(1, 1)
            injected(1, 31)
        poisons.close()  # a mended release, on which the same transactions do not fail
        db.master = "local[2]"
        db.start_pipeline(["--plan-limit=100"])
        goes_on_without(db, injected)

        db.kill_pipeline()
        db.place.checkpoint.rename(tmp_path / "old")
        injected(1, 19)
        injected(len(POISONED), 43)
        db.load(transfers(50, seed=3))
        db.start_pipeline()
        report = db.assert_serial()
        assert report.results.duplicates >= 650
        assert report.faults == len(POISONED)
        # Results may be in Kafka before the dead letters of the same batch.
        wait_for(lambda: every_dead_letter_came_again(db), "all dead letters again")
        db.broker.kill()
        injected(1, 4)
        db.broker.start()
        db.load(transfers(200, seed=5))
        assert db.assert_serial().transactions > 800

        db.kill_pipeline()
        db.load(transfers(10, seed=4))
        delete_unread(db)
        injected(1, 16)
        said = fails(db)
        assert "were deleted before the pipeline had read them" in said
        assert "docs/operations.md" in said


def every_dead_letter_came_again(db: Database) -> bool:
    found = db.assert_serial().deadletters
    return found.duplicates == found.matched >= len(POISONED) + 1
