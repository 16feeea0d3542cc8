"""A pipeline that `spark-submit` starts."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

import pyspark

from streamydb.local.jars import resolve
from streamydb.local.java import java_home
from streamydb.local.resources import shipped_file
from streamydb.testing.database import Database

SPARK_HOME = Path(pyspark.__file__).parent
JOB = shipped_file("jobs/pipeline.py")
LOG = f"-Dlog4j2.configurationFile={shipped_file('log4j2.properties')}"


def environment() -> dict[str, str]:
    """What a user of spark-submit has set."""
    return {
        **os.environ,
        "SPARK_HOME": str(SPARK_HOME),
        "JAVA_HOME": java_home(),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


class Submitted(Database):
    """A database whose pipeline is started by `spark-submit`, as docs/operations.md says."""

    def command(self, extra: Iterable[str] = ()) -> list[str]:
        """The command line of spark-submit."""
        jars = ":".join(str(path) for path in resolve("pipeline"))
        return [
            str(SPARK_HOME / "bin" / "spark-submit"),
            "--master",
            self.master,
            "--properties-file",
            str(shipped_file("spark-defaults.conf")),
            "--driver-class-path",
            jars,
            "--conf",
            f"spark.executor.extraClassPath={jars}",
            "--conf",
            f"spark.driver.defaultJavaOptions={LOG}",
            "--conf",
            "spark.driver.host=127.0.0.1",
            "--conf",
            "spark.executor.memory=1g",
            str(JOB),
            "--database",
            self.name,
            "--bootstrap",
            self.broker.bootstrap,
            "--checkpoint",
            str(self.place.checkpoint),
            "--shards",
            str(self.shards),
            "--status-file",
            str(self.place.status_file),
            "--local",
            str(self.folder / "local"),
            "--procedures",
            str(self.place.procedures),
            *self.options,
            *extra,
        ]

    def stop_pipeline(self) -> int:
        """Ask the driver, which the status file names, to stop; spark-submit's exit code."""
        process, pid = self._process, self.status().pid
        assert process is not None
        assert pid is not None
        os.kill(pid, signal.SIGTERM)
        return process.wait(120)

    def assert_quiet(self) -> None:
        """The log tells of the pipeline, and of Spark nothing but warnings."""
        log = self.log_file.read_text("utf-8")
        assert " INFO streamydb.pipeline: batch " in log
        assert not re.search(r"^\S+ \S+ INFO (?!streamydb)", log, re.MULTILINE), "Spark is quiet"
