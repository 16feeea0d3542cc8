"""The session: the master that a user names, with the retries that it lacks; Hadoop's settings."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest

from streamydb.pipeline import session
from streamydb.pipeline.session import forget_defaults, with_retries


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that a session puts there outlives a test."""
    for name in ("PYTHONHASHSEED", "SPARK_LOCAL_DIRS", "ROCKSDB_SHAREDLIB_DIR"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("local", "local[1,4]"),
        ("local[*]", "local[*,4]"),
        ("local[2]", "local[2,4]"),
        ("local[2,1]", "local[2,1]"),
        ("local-cluster[2,2,2048]", "local-cluster[2,2,2048]"),
        ("spark://host:7077", "spark://host:7077"),
    ],
)
def test_local_masters_retry_failed_tasks(given: str, used: str) -> None:
    assert with_retries(given) == used


@pytest.mark.parametrize(
    ("master", "daemon"),
    [
        *dict.fromkeys(("local", "local[*]", "local[2,1]"), "streamydb.pipeline.daemon").items(),
        ("local-cluster[2,2,2048]", None),
        ("spark://host:7077", None),
    ],
)
def test_our_daemon_forks_the_workers_of_this_machine(
    master: str, daemon: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "resolve", lambda _: [])
    monkeypatch.setattr(session, "java_options", lambda *_: [])
    assert session._defaults(master).get("spark.python.daemon.module") == daemon


@pytest.mark.parametrize(
    ("master", "extra", "jvms", "daemons"),
    [
        (None, {}, 0, 0),
        ("local[2]", {}, 1, 1),
        ("local[2]", {"spark.pyspark.python": "/other/python"}, 1, 0),
        ("local[2]", {"spark.python.use.daemon": "false"}, 1, 0),
        ("local[2]", {"spark.python.daemon.module": "pyspark.daemon"}, 1, 0),
        ("spark://host:7077", {}, 1, 0),
    ],
)
def test_only_what_a_session_will_use_is_started_early(
    master: str | None, extra: dict[str, str], jvms: int, daemons: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    started: list[tuple[str, Any]] = []
    monkeypatch.setattr(session, "resolve", lambda _: [])
    monkeypatch.setattr(session, "java_options", lambda *_: [])
    monkeypatch.setattr(session, "EarlyDaemon", lambda python: started.append(("daemon", python)))
    monkeypatch.setattr(session, "EarlyJvm", lambda *given: started.append(("jvm", given)))
    monkeypatch.setattr(session, "sweep", lambda: None)
    for name in (
        "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "MALLOC_ARENA_MAX", "SPARK_HOME",
        "SPARK_LOCAL_DIRS",
    ):  # fmt: skip
        monkeypatch.setenv(name, f"/{name}")
    session.start_processes("bank", master, extra)
    assert [what for what, _ in started] == ["daemon"] * daemons + ["jvm"] * jvms
    for what, given in started:
        if what == "daemon":
            assert given == "/PYSPARK_PYTHON"
        else:
            home, settings = given
            assert home == Path("/SPARK_HOME")
            assert settings["spark.app.name"] == "bank"
            assert extra.items() <= settings.items()


@pytest.mark.parametrize(
    ("master", "home"),
    [("local[2]", "little"), ("k8s://host", "whole"), ("spark://host:7077", "whole")],
)
def test_spark_has_all_of_its_jars_where_it_does_not_run_on_one_machine(
    master: str, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    homes: list[Path] = []
    monkeypatch.setattr(session, "resolve", lambda _: [])
    monkeypatch.setattr(session, "java_options", lambda *_: [])
    monkeypatch.setattr(session, "EarlyDaemon", lambda _: None)
    monkeypatch.setattr(session, "EarlyJvm", lambda folder, _: homes.append(folder))
    monkeypatch.setattr(session, "sweep", lambda: None)
    monkeypatch.setattr(session, "spark_home", lambda _: Path("little"))
    monkeypatch.setenv("SPARK_HOME", "")
    monkeypatch.delenv("SPARK_HOME")
    session.start_processes("bank", master, {"spark.local.dir": "/mine"})
    assert homes == [{"whole": Path(pyspark.__file__).parent, "little": Path("little")}[home]]


@pytest.mark.parametrize("given", [None, "7"])
def test_no_client_knows_the_hashes_of_texts_in_the_workers(
    given: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark itself takes 0, and clients could choose texts that a dict takes long to find."""
    seeds: list[str] = []
    monkeypatch.setattr(session, "resolve", lambda _: [])
    monkeypatch.setattr(session, "java_options", lambda *_: [])
    monkeypatch.setattr(session, "EarlyJvm", lambda *_: None)
    monkeypatch.setattr(session, "sweep", lambda: None)
    monkeypatch.setattr(
        session, "EarlyDaemon", lambda _: seeds.append(os.environ["PYTHONHASHSEED"])
    )
    for _ in range(2):
        monkeypatch.delenv("PYTHONHASHSEED", raising=False)
        if given is not None:
            monkeypatch.setenv("PYTHONHASHSEED", given)
        session.start_processes("bank", "local[2]", {"spark.local.dir": "/mine"})
    assert seeds == ["7", "7"] if given else len({*seeds, "0"}) == 3


@pytest.mark.parametrize(
    ("master", "extra", "given", "named"),
    [
        ("local[2]", {}, None, True),
        ("local[2]", {"spark.local.dir": "/mine"}, None, False),
        ("local[2]", {}, "/mine", False),
        ("spark://host:7077", {}, None, False),
    ],
)
def test_spark_keeps_its_temporary_files_where_the_next_start_finds_them(
    master: str,
    extra: dict[str, str],
    given: str | None,
    *,
    named: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full() -> Path:
        raise OSError(28, "No space left on device")

    swept: list[str] = []
    monkeypatch.setattr(session, "sweep", lambda: swept.append("swept"))
    monkeypatch.setattr(session, "resolve", lambda _: [])
    monkeypatch.setattr(session, "java_options", lambda *_: [])
    for part in ("EarlyDaemon", "EarlyJvm"):
        monkeypatch.setattr(session, part, lambda *_: None)
    for name in ("SPARK_LOCAL_DIRS", "ROCKSDB_SHAREDLIB_DIR"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    if given is not None:
        monkeypatch.setenv("SPARK_LOCAL_DIRS", given)
    for folder in (full, lambda: tmp_path):
        monkeypatch.setattr(session, "scratch_folder", folder)
        session.start_processes("bank", master, extra)
    assert os.environ.get("SPARK_LOCAL_DIRS") == (str(tmp_path) if named else given)
    assert os.environ.get("ROCKSDB_SHAREDLIB_DIR") == (str(tmp_path) if named else None)


@pytest.mark.parametrize(
    ("name", "options", "used"),
    [
        ("t", "-Da=b", '-Da=b "-Djava.io.tmpdir={}"'),
        ("a b", "", '"-Djava.io.tmpdir={}"'),
        ("t", "-Djava.io.tmpdir=/mine", "-Djava.io.tmpdir=/mine"),
        ("t" * 99, "-Da=b", "-Da=b"),
    ],
)
def test_the_jvm_unpacks_libraries_where_the_next_start_finds_them(
    name: str, options: str, used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless somebody names another folder, or no socket could lie there."""
    started: list[dict[str, str]] = []
    folder = Path("/tmp") / name  # noqa: S108 - nothing is made there
    monkeypatch.setattr(session, "EarlyDaemon", lambda _: None)
    monkeypatch.setattr(session, "EarlyJvm", lambda _, settings: started.append(settings))
    monkeypatch.setattr(session, "scratch_folder", lambda: folder)
    monkeypatch.setattr(session, "sweep", lambda: None)
    monkeypatch.setattr(session, "resolve", lambda _: [])
    monkeypatch.setattr(session, "java_options", lambda *_: [])
    for variable in ("SPARK_LOCAL_DIRS", "ROCKSDB_SHAREDLIB_DIR"):
        monkeypatch.setenv(variable, "")
        monkeypatch.delenv(variable)
    session.start_processes("bank", "local[2]", {"spark.driver.extraJavaOptions": options})
    (settings,) = started
    assert settings["spark.driver.extraJavaOptions"] == used.format(folder)


def test_a_daemon_that_cannot_be_started_early_is_started_by_spark(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(_: str) -> None:
        raise OSError("AF_UNIX path too long")

    monkeypatch.setattr(session, "EarlyDaemon", fails)
    monkeypatch.setattr(session, "EarlyJvm", lambda *_: "jvm")
    monkeypatch.setattr(session, "sweep", lambda: None)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/given")
    caplog.set_level("INFO")
    found = session.start_processes("bank", "local[2]")
    assert str(found.jvm) == "jvm"
    assert found.daemon is None
    assert "not started early: AF_UNIX path too long" in caplog.text


class Hadoop(dict[str, str]):
    """Hadoop's settings."""

    def set(self, name: str, value: str) -> None:
        self[name] = value


def spark(master: str, hadoop: Hadoop) -> Any:
    """A session as far as it is asked here."""
    given = [("spark.hadoop.fs.file.impl", "Bare"), ("spark.app.name", "bank")]
    context = SimpleNamespace(
        master=master,
        _jsc=SimpleNamespace(hadoopConfiguration=lambda: hadoop),
        getConf=lambda: SimpleNamespace(getAll=lambda: given),
    )

    @cache
    def made() -> None:
        """Of the session's state, Spark makes one, and has Hadoop read its defaults meanwhile."""
        hadoop.set("dfs.replication", "3")

    return SimpleNamespace(
        sparkContext=context, _jsparkSession=SimpleNamespace(sessionState=made)
    )  # fmt: skip


def test_on_one_machine_only_the_given_settings_of_hadoop_are_left() -> None:
    hadoop = Hadoop({"io.file.buffer.size": "65536", "fs.file.impl": "Local"})
    session = spark("local[2,4]", hadoop)
    forget_defaults(session)
    session._jsparkSession.sessionState()  # whoever needs it next
    assert hadoop == {"fs.file.impl": "Bare"}


def test_on_a_cluster_all_of_them_stay() -> None:
    hadoop = Hadoop({"dfs.replication": "3"})
    forget_defaults(spark("spark://host:7077", hadoop))
    assert hadoop == {"dfs.replication": "3"}
