"""Why a pipeline has no real-time gear: PySpark, the database, and the place where it runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from streamydb.errors import ConfigurationError
from streamydb.frames.shards import ShardConfig
from streamydb.pipeline.__main__ import parse
from streamydb.pipeline.config import PipelineConfig
from streamydb.pipeline.realtime import site
from streamydb.pipeline.realtime.requirements import (
    OFF,
    SMALL,
    GearSite,
    site_obstacle,
    version_obstacle,
)
from streamydb.pipeline.session import (
    DAEMON,
    OUR_DAEMON,
    PIPELINED,
    POLLING_DELAY,
    added_settings,
)  # fmt: skip
from streamydb.records.gears import database_obstacle
from streamydb.settings import Settings

HERE = GearSite("4.3.0", "local[3,4]", is_local=True, slots=3, pipelined=True, our_daemon=True)
DATABASE = ShardConfig("bank", "me", 1, 1, 100)


class Application:
    """Stands in for a running Spark application."""

    def __init__(self, master: str, pipelined: str | None = "true") -> None:
        settings = {DAEMON: OUR_DAEMON}
        settings |= {} if pipelined is None else {PIPELINED: pipelined}
        self.sparkContext = SimpleNamespace(master=master)
        self.conf = SimpleNamespace(get=settings.get)


def config_of(tmp_path: Path, **settings: Any) -> PipelineConfig:
    made = Settings(bootstrap="127.0.0.1:1", **settings)
    return PipelineConfig(made, tmp_path, None, tmp_path, gears=made.gear == "both")


@pytest.fixture(autouse=True)
def slots(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """So many tasks run at the same time; PySpark is of the release that is needed."""
    found = [3]
    monkeypatch.setattr(site, "task_slots", lambda _: found[-1])
    monkeypatch.setattr("pyspark.__version__", "4.3.0")
    monkeypatch.delenv("STREAMYDB_GEAR", raising=False)
    return found


@pytest.mark.parametrize(
    ("version", "has"),
    [("4.3.0", True), ("4.3.0.dev1", True), ("4.10.0", True), ("5.0", True), ("4.2.9", False),
     ("3.9.1", False), ("", False)],
)  # fmt: skip
def test_the_version_of_pyspark_decides(version: str, *, has: bool) -> None:
    assert (version_obstacle(version) is None) == has


@pytest.mark.parametrize(
    ("facts", "named"),
    [
        ((1, 1, "planner"), None),
        ((2, 1, "planner"), "the database has 2 shards; it needs one shard"),
        ((1, 4, "planner"), "4 partitions of the log"),
        ((1, 1, "single"), "grouping=single"),
        ((3, 2, "single"), "3 shards and 2 partitions of the log and grouping=single"),
    ],
)
def test_the_facts_of_the_database_decide(facts: tuple[int, int, str], named: str | None) -> None:
    why = database_obstacle(*facts)
    assert (why is None) if named is None else (named in (why or ""))


def test_the_place_decides_and_the_reason_says_what_to_do() -> None:
    assert site_obstacle(HERE) is None
    far = replace(HERE, master="k8s://https://there", is_local=False)
    assert "another machine than the driver" in (site_obstacle(far) or "")
    narrow = replace(HERE, master="local[1]", slots=1)
    assert "--master 'local[2,4]'" in (site_obstacle(narrow) or "")
    assert PIPELINED in (site_obstacle(replace(HERE, pipelined=False)) or "")
    assert DAEMON in (site_obstacle(replace(HERE, our_daemon=False)) or "")
    assert "PySpark 4.2.0" in (site_obstacle(replace(HERE, pyspark="4.2.0")) or "")


@pytest.mark.parametrize(
    ("master", "has"),
    [("local", True), ("local[*]", True), ("local[3,4]", True), ("local-cluster[2,2,2048]", False),
     ("spark://localhost:7077", False), ("yarn", False), ("k8s://https://there", False)],
)  # fmt: skip
def test_a_master_with_other_machines_has_one_gear(
    master: str, tmp_path: Path, *, has: bool
) -> None:
    """By the application that runs: under `spark-submit` we are given no master."""
    application = cast("Any", Application(master))
    config = config_of(tmp_path, gear="both")
    assert site.gear_site(application).is_local == has
    if has:
        assert site.gear_obstacle(config, DATABASE, 1, application) is None
        return
    with pytest.raises(ConfigurationError, match="another machine than the driver"):
        site.gear_obstacle(config, DATABASE, 1, application)


def test_an_application_without_the_setting_or_a_second_slot_has_one_gear(
    slots: list[int], tmp_path: Path
) -> None:
    config = config_of(tmp_path, gear="both")
    with pytest.raises(ConfigurationError, match=PIPELINED):
        site.gear_obstacle(config, DATABASE, 1, cast("Any", Application("local[3]", None)))
    slots.append(1)
    with pytest.raises(ConfigurationError, match="1 task at a time"):
        site.gear_obstacle(config, DATABASE, 1, cast("Any", Application("local[1]")))


def test_who_asks_for_both_is_refused_and_who_does_not_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sharded = ShardConfig("bank", "me", 2, 1, 100)
    application = cast("Any", Application("local[3]"))
    monkeypatch.setenv("STREAMYDB_GEAR", "both")
    with pytest.raises(ConfigurationError, match=r"2 shards.*Leave the setting"):
        site.gear_obstacle(config_of(tmp_path), sharded, 1, application)
    monkeypatch.setenv("STREAMYDB_GEAR", "")  # as docker/compose.yaml gives it: the default
    assert "2 shards" in (site.gear_obstacle(config_of(tmp_path), sharded, 1, application) or "")


def test_partitions_that_the_log_got_later_end_nothing(tmp_path: Path) -> None:
    config = config_of(tmp_path, gear="both")
    found = site.gear_obstacle(config, DATABASE, 2, cast("Any", Application("local[3]")))
    assert "the log was given more partitions: it has 2" in (found or "")


def test_one_setting_turns_the_gear_off(tmp_path: Path) -> None:
    config = config_of(tmp_path, gear="micro-batch")
    assert site.gear_obstacle(config, DATABASE, 1, cast("Any", Application("local[3]"))) == OFF


def test_a_small_pipeline_has_two_gears_only_if_asked(tmp_path: Path) -> None:
    small = ["--bootstrap", "b:1", "--checkpoint", str(tmp_path), "--small"]
    left_out, asked = parse(small), parse([*small, "--gear", "both"])
    application = cast("Any", Application("local[3]"))
    assert site.gear_obstacle(left_out, DATABASE, 1, application) == SMALL
    assert site.gear_obstacle(asked, DATABASE, 1, application) is None
    assert not left_out.may_have_gears


def test_spark_is_not_made_for_two_gears_where_there_is_one(tmp_path: Path) -> None:
    given = ["--bootstrap", "b:1", "--checkpoint", str(tmp_path), "--gear", "both"]
    both, sharded = parse(given), parse([*given, "--shards", "2"])
    assert (both.may_have_gears, both.gears_asked) == (True, True)
    assert (sharded.may_have_gears, sharded.gears_asked) == (False, True)
    assert not parse([*given[:4], "--gear", "micro-batch"]).may_have_gears


def test_the_gear_that_follows_looks_for_records_less_often(tmp_path: Path) -> None:
    given = ["--bootstrap", "b:1", "--checkpoint", str(tmp_path)]
    both, alone = parse([*given, "--gear", "both"]), parse([*given, "--gear", "micro-batch"])
    chosen = parse([*given, "--gear", "both", "--conf", f"{POLLING_DELAY}=20ms"])
    looks = [added_settings(each).get(POLLING_DELAY) for each in (both, alone, chosen)]
    assert looks == ["500ms", None, "20ms"]
