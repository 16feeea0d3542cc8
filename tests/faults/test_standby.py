"""Two pipelines over one log, on real Kafka and Spark: take-over, hand-over, damage.

Every test ends with a serial replay of the log, except where an active pipeline was damaged on
purpose: then the damage must have been found.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import lmdb
import pytest
from confluent_kafka import Consumer, TopicPartition

from streamydb.kafka import TopicNames
from streamydb.kafka.connection import watermarks
from streamydb.testing.database import Database, wait_for
from tests.support.bank import appending, transfers
from tests.support.faulty import POISONED, TRIED_TWICE, poisoned, resolved

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

DIGESTS = ["--digest-interval", "100", "--gear", "micro-batch"]
"""With two gears a pipeline leads by either; `test_gears.py` has them beside a standby."""


def load(
    db: Database, seed: int, *, hot: bool = True, at_once: int = 10, accounts: int = 50
) -> AbstractContextManager[None]:
    """Append transfers in the background while the body runs; not ``hot``: hardly any conflict."""

    def append(part: int) -> None:
        spread = accounts if hot else 1_000_000
        some = transfers(at_once, seed=seed * 100_000 + part, accounts=spread)
        db.load(txn for txn in some if hot or "asserts" not in txn)

    return appending(append)


class Results:
    """When results come, as a client sees it."""

    def __init__(self, db: Database) -> None:
        """Read what comes from now on."""
        self._consumer = Consumer(
            {"bootstrap.servers": db.broker.bootstrap, "group.id": "t", "fetch.wait.max.ms": 10}
        )
        topic = TopicNames(db.name).results
        self._consumer.assign(
            [
                TopicPartition(topic, q, watermarks(self._consumer, topic, q, 10)[1])
                for q in range(db.shards)
            ]
        )
        self._ended = threading.Event()
        self.pauses_s: list[float] = []
        self.count = self.repeated = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        last = None
        seen: set[bytes] = set()
        while not self._ended.is_set():
            for message in self._consumer.consume(1000, 0.05):
                value = message.value()
                if message.error() is not None:
                    continue
                if value in seen:
                    self.repeated += 1
                    continue
                seen.add(value or b"")
                now = time.monotonic()
                if last is not None:
                    self.pauses_s.append(now - last)
                last = now
                self.count += 1

    def close(self) -> None:
        """Stop reading."""
        self._ended.set()
        self._thread.join()
        self._consumer.close()


@contextmanager
def results(db: Database) -> Iterator[Results]:
    """Watch the results while the body runs."""
    found = Results(db)
    try:
        yield found
    finally:
        found.close()


def tell(text: str) -> None:
    """Show a figure to who runs the tests with `-s`."""
    sys.stdout.write(f"{text}\n")


def more(found: Results, by: int) -> None:
    """Wait for ``by`` more results."""
    begun = found.count
    wait_for(lambda: found.count >= begun + by, f"{by} more results")


def ready(db: Database) -> None:
    """Wait until a standby follows and could take over."""
    wait_for(lambda: db.status().role == "following" and bool(db.status().ready), "readiness")
    wait_for(lambda: (db.status().resolved or 0) > 0, "the standby's first progress")


def leads(db: Database) -> None:
    wait_for(lambda: db.status().role == "leading", "the take-over")


def handover(db: Database, to: str = "", code: int = 0) -> str:
    """Run `streamydb handover`, which ends with ``code``; what it says."""
    command = [sys.executable, "-m", "streamydb.cli", "handover", "--database", db.name]
    command += ["--bootstrap", db.broker.bootstrap, *(["--to", to] if to else [])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == code, done.stderr
    return done.stderr


@pytest.mark.long
@pytest.mark.fault(1, "SIGKILL under load, a standby takes over")
@pytest.mark.fault(
    43, "a mended standby takes over from a pipeline that had faults before and beside it",
    "the same verdicts; digests agree",
)  # fmt: skip
def test_the_active_one_is_killed_under_load(tmp_path: Path, injected: Callable[..., None]) -> None:
    """SIGKILL: the standby goes on from the last resolved seq; nothing lost, nothing different.

    Our own code fails on some transactions in the first one alone; the standby executes them.
    """
    with ExitStack() as stack:
        with poisoned(tmp_path):
            db = stack.enter_context(Database(tmp_path, options=DIGESTS, master=TRIED_TWICE))
        db.load(transfers(100))
        db.load(POISONED)
        db.load(transfers(100, seed=2))
        resolved(db, 200, 300)  # all are ruled on before the standby reads any of them
        with db.beside("standby") as other:
            ready(other)
            again = [{**txn, "id": f"{txn['id']}-again"} for txn in POISONED[:3]]
            db.load(again)
            injected(1, 1)
            with results(db) as seen, load(other, 1, at_once=40):
                more(seen, 500)
                db.kill_pipeline()
                more(seen, 500)
            leads(other)
            tell(f"switch-over: no result for {max(seen.pauses_s):.2f} s")
            report = other.assert_serial()
            assert report.transactions > 1200
            # The first one starts its query again to rule; the standby may lead before it has.
            assert len(POISONED) <= report.faults <= len(POISONED) + len(again)
            injected(report.faults, 43)
            assert other.status().alarm is None


@pytest.mark.long
@pytest.mark.fault(
    42, "a standby that is far behind beside a level one: `handover` to it, SIGKILL of the leader",
    "refused; the level one leads; equal to the serial replay",
)  # fmt: skip
def test_a_cold_standby_leaves_the_lead_to_a_level_one(tmp_path: Path) -> None:
    """The cold one reads a few records a batch, so that it is behind for all of the test."""
    with Database(tmp_path, options=DIGESTS) as db, db.beside("level") as level:
        db.load(transfers(3_000))
        wait_for(lambda: (level.status().resolved or 0) >= 3_000, "the level one's progress")
        ready(level)
        with db.beside("cold", ("--standby", "--max-offsets", "3")) as cold:
            assert not cold.status().ready, "it has executed nothing"
            refused = handover(db, "cold", code=1)
            tell(refused.strip())
            assert "the standby cold is not ready" in refused
            with results(db) as seen, load(db, 7):
                more(seen, 200)
                said = handover(db, "level")
                leads(level)
                tell(f"hand-over: {said.strip()} Seen: {max(seen.pauses_s):.2f} s")
                assert "Clients waited for verdicts for" in said
                ready(db)
                more(seen, 200)
                level.kill_pipeline()
                leads(db)
                more(seen, 200)
            tell(f"after the kill: no result for {max(seen.pauses_s):.2f} s")
            assert (cold.status().role, cold.status().ready) == ("following", False)
            assert (cold.status().behind or 0) > 0
        assert db.assert_serial().transactions > 3_500


@pytest.mark.fault(1, "kills of either pipeline and hand-overs, in three shapes")
@pytest.mark.long
@pytest.mark.parametrize(
    ("shards", "partitions", "grouping"), [(1, 1, "planner"), (2, 3, "planner"), (2, 2, "single")]
)
def test_roles_go_back_and_forth(
    tmp_path: Path, shards: int, partitions: int, grouping: str
) -> None:
    """Hand-over by command, kills of either side, restarts, a standby that begins late."""
    options = [*DIGESTS, "--grouping", grouping]
    hot = grouping == "planner"  # otherwise a hot key does one transaction per micro-batch
    with Database(tmp_path, shards=shards, partitions=partitions, options=options) as db:
        db.load(transfers(400, accounts=200))
        db.assert_serial()
        with db.beside("standby") as other, results(db) as seen, load(db, 2, hot=hot):
            ready(other)
            more(seen, 300)
            said = handover(db)
            assert "Pipeline standby leads bank since epoch 2" in said
            leads(other)
            ready(db)
            tell(f"hand-over: {said.strip()}; longest pause so far {max(seen.pauses_s):.2f} s")
            more(seen, 300)
            other.kill_pipeline()
            leads(db)
            more(seen, 300)
            other.start_pipeline()
            ready(other)
            db.kill_pipeline()
            leads(other)
            more(seen, 300)
            db.start_pipeline()
            ready(db)
            tell(f"after kills: longest pause {max(seen.pauses_s):.2f} s")
        report = db.assert_serial()
        assert report.transactions > 1500


@pytest.mark.fault(3, "SIGSTOP of all its processes for 60 s, a standby takes over, SIGCONT")
@pytest.mark.long
def test_a_driver_that_was_stopped_for_a_minute_stands_down(tmp_path: Path) -> None:
    """SIGSTOP for 60 s, then SIGCONT, while another took over (FAULTS 3)."""
    with Database(tmp_path, options=DIGESTS) as db, db.beside("standby") as other:
        db.load(transfers(100))
        ready(other)
        with results(db) as seen, load(db, 3):
            more(seen, 300)
            stopped = db.processes()
            for process in stopped:
                os.kill(process.pid, signal.SIGSTOP)
            until = time.monotonic() + 60
            leads(other)
            wait_for(lambda: time.monotonic() > until, "a minute", 70)
            for process in stopped:
                os.kill(process.pid, signal.SIGCONT)
            ready(db)
            more(seen, 300)
        tell(f"stopped driver: longest pause {max(seen.pauses_s):.2f} s")
        assert (other.status().role, db.status().role) == ("leading", "following")
        wait_for(lambda: db.status().resolved == other.status().resolved, "both are as far")
        assert other.assert_serial().ok


SPREAD = 2_000
"""So many accounts that a micro-batch leaves most alone: what it writes is not read before."""


def damage(db: Database, name: str) -> int:
    """Change values under a running pipeline, in the file that its executors read."""
    changed = 0
    for folder in (db.folder / "local" / name / db.name).glob("*/*/*/values"):
        with lmdb.open(str(folder), max_dbs=2, map_size=1 << 30) as env:
            values = env.open_db(b"values")
            with env.begin(values, write=True) as txn:
                for key, value in list(txn.cursor()):
                    if key.startswith(b"acct/"):
                        txn.put(key, value[:9] + bytes([value[9] ^ 1]) + value[10:])
                        changed += 1
    return changed


@pytest.mark.long
@pytest.mark.parametrize("shards", [1, 2])
def test_a_damaged_standby_stops(tmp_path: Path, shards: int) -> None:
    with Database(tmp_path, shards=shards, options=DIGESTS) as db, db.beside("standby") as other:
        db.load(transfers(250))
        ready(other)
        with load(db, 4, accounts=SPREAD):
            wait_for(lambda: (other.status().seq or 0) > 300, "some load")
            assert damage(other, "@standby") > 20
            at = other.status().seq or 0
            wait_for(lambda: other.status().state == "failed", "the standby's end")
        status = other.status()
        assert "this state is damaged" in (status.error or "")
        assert "digests of shard" in (status.error or "")
        tell(f"damaged at about seq {at}, found by seq {status.seq}: {status.error}")
        assert db.status().state == "running"
        assert db.assert_serial().ok


@pytest.mark.long
def test_a_damaged_active_pipeline_stops_and_the_standby_goes_on(tmp_path: Path) -> None:
    with Database(tmp_path, options=DIGESTS) as db, db.beside("standby") as other:
        db.load(transfers(250))
        ready(other)
        with load(other, 5, accounts=SPREAD):
            wait_for(lambda: (other.status().seq or 0) > 300, "some load")
            assert damage(db, "") > 20
            wait_for(lambda: db.status().state == "failed", "the end of the damaged one")
            assert "this state is damaged" in (db.status().error or "")
            leads(other)
            at = other.status().seq or 0
            wait_for(lambda: (other.status().seq or 0) > at + 200, "progress")
        assert other.status().state == "running"


@pytest.mark.fault(3, "SIGSTOP of its Python alone: two pipelines write at once")
@pytest.mark.long
def test_two_that_write_at_once_are_harmless(tmp_path: Path) -> None:
    """The active one's Python is stopped: it cannot hear that it is overtaken.

    Its JVM ends the batch under way, and then waits for its Python (which takes the accumulators of
    each task), so that what both write is that batch, and what it goes on with when it awakes.
    """
    with Database(tmp_path, options=DIGESTS) as db, db.beside("standby") as other:
        db.load(transfers(100))
        ready(other)
        with results(db) as seen, load(db, 6):
            more(seen, 200)
            python = db.processes()[0].pid
            os.kill(python, signal.SIGSTOP)
            leads(other)
            more(seen, 100)
            os.kill(python, signal.SIGCONT)
            ready(db)
            more(seen, 100)
        report = other.assert_serial()
        tell(f"both wrote {report.results.duplicates} of {report.transactions} results")
        assert report.results.duplicates > 0
