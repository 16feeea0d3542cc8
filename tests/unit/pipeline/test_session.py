"""The session: the master that a user names, with the retries that it lacks; Hadoop's settings."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from streamydb.pipeline import session
from streamydb.pipeline.session import forget_defaults, with_retries


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


class Hadoop(dict[str, str]):
    """Hadoop's settings."""

    def set(self, name: str, value: str) -> None:
        self[name] = value


def spark(master: str, hadoop: Hadoop) -> Any:
    """A session as far as it is asked here."""
    given = [("spark.hadoop.fs.file.impl", "Bare"), ("spark.app.name", "bank")]
    context = SimpleNamespace(
        master=master, _jsc=SimpleNamespace(hadoopConfiguration=lambda: hadoop),
        getConf=lambda: SimpleNamespace(getAll=lambda: given),
    )
    return SimpleNamespace(sparkContext=context)


def test_on_one_machine_only_the_given_settings_of_hadoop_are_left() -> None:
    hadoop = Hadoop({"io.file.buffer.size": "65536", "fs.file.impl": "Local"})
    forget_defaults(spark("local[2,4]", hadoop))
    assert hadoop == {"fs.file.impl": "Bare"}


def test_on_a_cluster_all_of_them_stay() -> None:
    hadoop = Hadoop({"dfs.replication": "3"})
    forget_defaults(spark("spark://host:7077", hadoop))
    assert hadoop == {"dfs.replication": "3"}
