"""Real faults under load: what runs is killed, what is stored is taken away, what is sent is
hostile.

Each test ends with a serial replay of the log: nothing lost, nothing twice, nothing different. The
short forms
are part of `make test`; the long ones run with `make test-faults`.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from streamydb.testing import Database, wait_for
from tests.bank import transfers

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1500)]

HOSTILE = [
    b"", None, b"{", b"\xff\xfe", b"null", b"[]",
    b'{"id":"n","updates":[{"op":"put","key":"a","value":NaN}]}',
    b'{"id":"h","updates":[{"op":"put","key":"a","value":99999999999999999999}]}',
    b'{"id":"s","reads":["\\ud800"]}', b"[" * 70 + b"]" * 70, b'{"id":"u","unknown":1}',
    b'{"id":"c","call":{"procedure":"p","args":{},"keys":[]}}', b'{"marker":-1}',
    json.dumps({"id": "k", "reads": ["x" * 481]}).encode(),
    json.dumps({"id": "ok", "reads": ["x" * 480]}).encode(),
    json.dumps({"id": "many", "reads": [f"k{i}" for i in range(10_000)]}).encode(),
    json.dumps({"id": "too-many", "reads": [f"k{i}" for i in range(10_001)]}).encode(),
    json.dumps({"id": "empty", "asserts": {}, "updates": []}).encode(),
    b'{"id":"big","updates":[{"op":"put","key":"b","value":"' + b"v" * 262_142 + b'"}]}',
    b'{"id":"big2","updates":[{"op":"put","key":"b","value":"' + b"v" * 262_143 + b'"}]}',
]


@contextmanager
def load(db: Database, seed: int, until: int = 100_000) -> Iterator[None]:
    """Append transfers in the background while the body runs."""
    ended = threading.Event()

    def run() -> None:
        for part in range(until):
            if ended.is_set():
                return
            db.load(transfers(40, seed=seed * 1000 + part))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def progressed(db: Database, by: int) -> None:
    """Wait until ``by`` more transactions have been released."""
    begun = db.status().seq or 0
    wait_for(lambda: (db.status().seq or 0) >= begun + by, f"{by} more transactions")


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


def test_sigkill_of_the_driver(tmp_path: Path) -> None:
    kill_the_driver(tmp_path, rounds=1, shards=1)


@pytest.mark.long
@pytest.mark.parametrize("shards", [1, 2])
def test_sigkill_of_the_driver_ten_times(tmp_path: Path, shards: int) -> None:
    kill_the_driver(tmp_path, rounds=10, shards=shards)


def test_workers_killed_files_deleted_broker_killed_and_hostile_records(tmp_path: Path) -> None:
    with Database(tmp_path) as db:
        with load(db, 1):
            progressed(db, 100)
            assert db.kill_workers() > 0
            progressed(db, 100)
            db.delete_local_files()
            progressed(db, 100)
            db.load(HOSTILE)
            progressed(db, 100)
        assert db.assert_serial().ok
        db.broker.kill()
        db.broker.start()
        db.load(transfers(200, seed=5))
        report = db.assert_serial()
        assert report.transactions > 500
