"""SQL tables on a real Kafka, a real Spark and a real facade, with a replay at the end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import streamydb
from streamydb_layers.tables import Tables
from tests.layers.spark.test_layers import command
from tests.support.hermitage import SCHEDULES, filled
from tests.support.interleaving import interleave
from tests.support.layers import together

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]

SEEDS, STATEMENTS = range(3), 15
THREADS, ADDITIONS = 3, 5


@pytest.fixture
def database(tmp_path: Path) -> Iterator[str]:
    """A database; at the end the log is replayed, and all outputs are compared."""
    home = tmp_path / "home"
    try:
        up = json.loads(command(home, "streamydb.cli", "up", "--json", "--master", "local[2]"))
        yield up["http"]
        assert json.loads(command(home, "streamydb.cli", "check", "--json"))["ok"]
    finally:
        command(home, "streamydb.cli", "down")


def add(url: str) -> None:
    """Count in SQL over REST, while others do."""
    with streamydb.connect(url, timeout_s=120) as client:
        for _ in range(ADDITIONS):
            client.sql("update counters set n = n + 1 where id = 1", tables="rest")


def test_no_anomaly_and_no_lost_update(database: str) -> None:
    with streamydb.connect(database) as client:
        for schedule in SCHEDULES:
            with Tables(client, schedule.__name__) as tables:
                schedule(filled(tables))
        for seed in SEEDS:
            interleave(seed, Tables(client, f"random-{seed}"), STATEMENTS)
        client.sql("create table counters (id int primary key, n int)", tables="rest")
        client.sql("insert into counters values (1, 0)", tables="rest")
        together([partial(add, database)] * THREADS)
        found = client.sql("select n from counters", tables="rest")
        assert found.rows == ((THREADS * ADDITIONS,),)
