"""Extreme but legal: one key for all, 10,000 keys at once, one millisecond, idle partitions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streamydb.kafka import TopicNames
from streamydb.limits import KEYS_PER_TRANSACTION_MAX, TRANSACTION_BYTES_MAX
from streamydb.testing.database import Database, wait_for
from tests.support.bank import transfers
from tests.support.faulty import records_of, resolved, results_of

AGAIN = 200
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900), pytest.mark.long]


def additions(count: int, name: str, key: str = "hot") -> Iterator[dict[str, Any]]:
    """Transactions that all write one key."""
    for number in range(count):
        yield {"id": f"{name}-{number}", "updates": [{"op": "add", "key": key, "by": 1}]}


@pytest.mark.parametrize(
    ("grouping", "count"), [("planner", 20_000), ("single", 40)], ids=["planner", "single"]
)
@pytest.mark.fault(
    28, "all transactions on one key, others beside them, and one with 10,000 keys",
    "nobody starves, all are applied once; equal to the serial replay",
)  # fmt: skip
def test_a_hot_key_and_ten_thousand_keys(tmp_path: Path, grouping: str, count: int) -> None:
    with Database(tmp_path, options=["--grouping", grouping]) as db:
        db.load(additions(count, "hot"))
        db.load(transfers(100))
        many = [{"op": "put", "key": f"k{n}", "value": n} for n in range(KEYS_PER_TRANSACTION_MAX)]
        db.load([{"id": "many", "updates": many}])
        db.load(additions(count // 4, "again"))
        db.load([{"id": "end", "reads": ["hot", "k0", "k9999"]}])
        assert db.assert_serial().transactions >= count + count // 4 + 102
        found = {result["id"]: result for result in results_of(db)}
        assert found["many"]["status"] == "committed"
        assert found["end"]["reads"] == {"hot": count + count // 4, "k0": 0, "k9999": 9_999}


@pytest.mark.parametrize("shards", [1, 2, 8])
@pytest.mark.fault(
    8, "thousands of records in one millisecond in three partitions; rebuilt with 1, 2 and 8 tasks "
    "at a time, and with 1, 2 and 8 shards",
    "one order; equal to the serial replay",
)  # fmt: skip
def test_equal_timestamps_at_every_parallelism(tmp_path: Path, shards: int) -> None:
    with Database(tmp_path, shards=shards, partitions=3) as db:
        db.kill_pipeline()
        for partition in range(3):
            db.load(transfers(1_500, seed=partition, accounts=20), partition)
        for tasks in (1, 2, 8):
            db.master = f"local[{tasks}]"
            if db.place.checkpoint.exists():
                db.place.checkpoint.rename(tmp_path / f"before-{tasks}")
            db.start_pipeline()
            wait_for(lambda: (db.status().resolved or 0) >= 4_500, "everything resolved")
            report = db.assert_serial()
            db.kill_pipeline()
        assert report.results.duplicates >= 2 * report.transactions
        if shards == 1:
            at_once = Counter(r["ts_ms"] for r in results_of(db)[: report.transactions])
            assert max(at_once.values()) > 100


@pytest.mark.fault(
    7, "two of three partitions never get a transaction", "markers lift them; equal to the serial "
    "replay",
)  # fmt: skip
def test_idle_partitions(tmp_path: Path) -> None:
    with Database(tmp_path, partitions=3) as db:
        sent = 0
        for seed in range(5):
            sent += db.load(transfers(50, seed=seed), partition=1)
            resolved(db, sent)
        assert db.assert_serial().transactions == sent


@pytest.mark.fault(
    14, "records beyond the limit and below Kafka's, and the largest one, in the log",
    "rejected in its place; nothing half written; equal to the serial replay",
)  # fmt: skip
def test_large_records_in_the_log(tmp_path: Path, injected: Callable[..., None]) -> None:
    def record(name: str, size: int) -> bytes:
        """A transaction of so many bytes, within all other limits."""
        updates = [{"op": "put", "key": f"{name}{n}", "value": "v" * 200_000} for n in range(4)]
        updates.append({"op": "put", "key": name, "value": ""})
        whole = json.dumps({"id": name, "updates": updates})
        return whole.replace('""', '"' + "v" * (size - len(whole)) + '"').encode()

    with Database(tmp_path, shards=2) as db:
        db.load(transfers(50))
        for name, size in (("n", TRANSACTION_BYTES_MAX), ("n+1", TRANSACTION_BYTES_MAX + 1),
                           ("more", 990_000)):  # fmt: skip
            value = record(name, size)
            assert len(value) == size
            db.load([value])
            injected(1)
        db.load(transfers(50, seed=2))
        report = db.assert_serial()
        assert report.transactions > 100
        assert report.deadletters.matched == 2


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.fault(
    37, "values of 80 MB are written; then one transaction touches all of them, others many, and a "
    "result of 750 kB is asked for 200 times again",
    "reason code for the one; the others commit; equal to the serial replay",
)  # fmt: skip
def test_values_of_many_megabytes(tmp_path: Path, shards: int) -> None:
    keys = [f"large/{number}" for number in range(320)]
    with Database(tmp_path, shards=shards) as db:
        for start in range(0, len(keys), 3):
            updates = [
                {"op": "put", "key": key, "value": "x" * 250_000} for key in keys[start : start + 3]
            ]
            db.load([{"id": f"put-{start}", "updates": updates}])
        everything = [{"key": key, "exists": True} for key in keys]
        db.load([{"id": "too-much", "checks": everything}])
        for number in range(12):
            own = [{"key": key, "exists": True} for key in keys[number::4]]
            db.load([{"id": f"many-{number}", "checks": own, "reads": [keys[number]]}])
        all_of_it = {"id": "all-of-it", "reads": keys[:3]}
        db.load([all_of_it])
        db.load([{"id": "gone", "updates": [{"op": "delete", "key": key} for key in keys[:3]]}])
        db.load([all_of_it] * AGAIN)
        db.load(transfers(50))
        assert db.assert_serial().ok
        topic = TopicNames(db.name).results
        found = [json.loads(v) for part in range(shards) for v in records_of(db, topic, part)]
        codes = {result["id"]: result["code"] for result in found}
        assert codes["too-much"] == "values-too-large"
        assert {codes[f"many-{number}"] for number in range(12)} == {None}
        told = [result["reads"] for result in found if result["id"] == "all-of-it"]
        assert (len(told), told.count(told[0])) == (1 + AGAIN, 1 + AGAIN)
