"""Spark's own mode on Kubernetes, as deploy/kubernetes/spark has it; pods are processes here.

The driver's options and the executors' pods are those of the manifests. What stands in for a
cluster is an API server that starts a pod's command in an environment of its own, where of the
driver's folders only the volume can be seen.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from streamydb.local.java import java_home
from streamydb.testing.database import Database, wait_for
from tests.support.bank import transfers
from tests.support.kubernetes import Pods, serving_pods

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(500)]

SOURCES = Path(__file__).resolve().parents[2]
DEPLOY = SOURCES / "deploy" / "kubernetes" / "spark"


def driver_options(url: str) -> list[str]:
    """The pipeline's options in the driver's pod, for an API server at ``url``."""
    text = (DEPLOY / "driver.yaml").read_text("utf-8")
    (container,) = yaml.safe_load(text)["spec"]["template"]["spec"]["containers"]
    here = {
        "$(POD_NAMESPACE)": "bank", "$(POD_NAME)": "pipeline-0", "$(POD_IP)": "127.0.0.1",
        "$(SPARK_EXECUTOR_INSTANCES)": "2", "$(SPARK_EXECUTOR_CORES)": "1",
        "$(SPARK_EXECUTOR_IMAGE)": "streamydb", "/etc/spark-executor": str(DEPLOY),
    }  # fmt: skip
    options = []
    for argument in container["args"][1:]:
        if "serviceaccount" in argument or "driver.pod.name" in argument:
            continue  # of the cluster itself
        for name, value in here.items():
            argument = argument.replace(name, value)  # noqa: PLW2901 - one after the other
        options.append(argument.removeprefix("--option="))
    assert options[0] == "--master=k8s://https://kubernetes.default.svc"
    assert not any("$(" in option for option in options)
    return [
        f"--master=k8s://{url}", *options[1:],
        # The API server has no watch; Spark asks again instead.
        "--conf=spark.kubernetes.executor.enableApiWatcher=false",
        "--conf=spark.kubernetes.executor.apiPollingInterval=1s",
        "--conf=spark.executor.memory=1g",
    ]  # fmt: skip


def allowed() -> set[tuple[str, str]]:
    """What the role of the driver may do: verb and kind."""
    _, role, _ = yaml.safe_load_all((DEPLOY / "account.yaml").read_text("utf-8"))
    pairs = [(rule["verbs"], rule["resources"]) for rule in role["rules"]]
    return {(verb, kind) for verbs, kinds in pairs for verb in verbs for kind in kinds}


def image() -> dict[str, str]:
    """The environment that docker/Dockerfile gives a container."""
    wanted = ("PATH", "NUMBA_CACHE_DIR", "STREAMYDB_CACHE")
    return {
        **{name: os.environ[name] for name in wanted if name in os.environ},
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(SOURCES), "JAVA_HOME": java_home(),
    }  # fmt: skip


def test_executors_are_pods_that_may_be_lost(tmp_path: Path) -> None:
    with serving_pods(tmp_path, tmp_path / "home", image()) as (url, pods):
        database = Database(tmp_path, shards=2, options=driver_options(url))
        with database as db:
            db.load(transfers(150))
            assert db.assert_serial().ok
            _check(pods)
            seq = db.status().seq or 0
            db.load(transfers(1_000, seed=2))
            wait_for(lambda: (db.status().seq or 0) > seq, "the load to be under way")
            lost, process = next(iter(pods.executors().items()))
            process.kill()
            assert db.assert_serial(300).transactions > 1_000
            wait_for(lambda: len(pods.executors()) == 2, "another executor", 120)
            assert lost not in pods.executors()
            assert db.stop_pipeline() == 0
            assert pods.asked <= allowed(), "its role allows what the driver asks for"
            wait_for(lambda: not pods.executors(), "the executors to be removed", 60)
            db.load(transfers(100, seed=3))
            db.start_pipeline()
            assert db.assert_serial().transactions > 1_150


def _check(pods: Pods) -> None:
    """The executors are what the manifest says, with what Spark adds."""
    assert len(pods.executors()) == 2
    template: dict[str, Any] = yaml.safe_load((DEPLOY / "executor.yaml").read_text("utf-8"))
    for pod in pods.created:
        (container,) = pod["spec"]["containers"]
        (wanted,) = template["spec"]["containers"]
        for name in ("command", "securityContext"):
            assert container[name] == wanted[name], name
        assert (container["image"], container["args"]) == ("streamydb", ["executor"])
        mounted = [each["mountPath"] for each in container["volumeMounts"]]
        assert {each["mountPath"] for each in wanted["volumeMounts"]} <= set(mounted)
        assert pod["spec"]["securityContext"]["runAsNonRoot"]
