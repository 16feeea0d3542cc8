"""The anomalies of the Hermitage list, in SQL: none of them happens."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("sqlglot")

from streamydb.testing.clients import MemoryHost
from streamydb_layers.tables import Tables
from tests.support.hermitage import SCHEDULES, Schedule, filled


@pytest.fixture(params=["memory", "client"])
def tables(request: pytest.FixtureRequest) -> Iterator[Tables]:
    """Two rows, in memory and behind a client."""
    with MemoryHost() as host:
        made = Tables.in_memory() if request.param == "memory" else Tables(host.connect())
        with made:
            yield filled(made)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda each: each.__name__)
def test_a_schedule_shows_no_anomaly(tables: Tables, schedule: Schedule) -> None:
    schedule(tables)
