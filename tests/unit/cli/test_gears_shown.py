"""The gears of a pipeline, as `status` and `doctor` show them."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest

from streamydb.cli.status import gear_row
from streamydb.local.folder import PipelineStatus
from streamydb.records.gears import GearStatus
from streamydb.settings import Settings

doctor = import_module("streamydb.cli.doctor")


def test_status_says_which_gear_leads_and_how_far_the_other_one_is() -> None:
    said = PipelineStatus(state="running", role="leading")
    said.gear = GearStatus("real-time", 1, "the log is calm", 7, behind=3, behind_records=1_004)
    row = gear_row(said)
    assert row is not None
    assert row.startswith("real-time leads for ")
    assert row.endswith("the log is calm; the other one is 3 seqs and 1,004 records behind")
    said.gear = GearStatus("micro-batch", 1, "no", obstacle="the database has 2 shards")
    assert gear_row(said) == (
        "one, micro-batch; there is no real-time gear: the database has 2 shards"
    )
    assert gear_row(PipelineStatus(state="stopped", gear=said.gear)) is None


@pytest.mark.parametrize(
    ("pyspark", "shards", "gear", "level", "what"),
    [
        ("4.3.0", 1, "both", "ok", "two: micro-batch and real-time"),
        ("4.3.0", 2, "both", "fail", "the database has 2 shards"),
        ("4.2.0", 1, "both", "fail", "PySpark 4.2.0 cannot"),
        ("4.3.0", 1, "micro-batch", "ok", "this database could have two"),
        ("4.2.0", 1, "micro-batch", "ok", "could have no other: PySpark 4.2.0"),
    ],
)
def test_doctor_says_what_is_missing(
    pyspark: str, shards: int, gear: Any, level: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = {
        "bank.feedback": SimpleNamespace(partitions=shards),
        "bank.transactions": SimpleNamespace(partitions=1),
    }
    monkeypatch.setattr("streamydb.kafka.describe", lambda *_: topics)
    monkeypatch.setattr(doctor, "installed", lambda _: pyspark)
    settings = Settings(bootstrap="127.0.0.1:1", gear=gear)
    target = SimpleNamespace(settings=settings, connection={}, database="bank")
    found = doctor._gears(target)
    assert found.level == level
    assert what in found.what
