"""The requirements of the real-time gear (pure): why a pipeline can have none.

The gear reads the local files of the shard (`files`). They lie where the task of the shard runs, so
all tasks must run on the driver's machine: with any other master there is one gear.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

__all__ = ["OFF", "SMALL", "GearSite", "site_obstacle", "version_obstacle"]

SPARK_MIN: Final = (4, 3)
SLOTS_MIN: Final = 2  # a task of each gear runs at the same time
OFF: Final = "it is turned off (STREAMYDB_GEAR is micro-batch)"
SMALL: Final = "--small leaves it out, unless STREAMYDB_GEAR or --gear asks for both"


@dataclass(frozen=True, slots=True)
class GearSite:
    """The place where a pipeline runs, as far as the real-time gear depends on it.

    ``pyspark``: its version. ``master``: Spark's, as the running application has it; ``is_local``:
    all its tasks run in the driver's process. ``slots``: how many tasks run at the same time.
    ``pipelined``: Spark writes each batch to the worker of a Python function at once.
    ``our_daemon``: `pipeline.daemon` forks the workers.
    """

    pyspark: str
    master: str
    is_local: bool
    slots: int
    pipelined: bool
    our_daemon: bool


def version_obstacle(pyspark: str) -> str | None:
    found = re.match(r"(\d+)\.(\d+)", pyspark)
    if found is not None and (int(found[1]), int(found[2])) >= SPARK_MIN:
        return None
    needed = ".".join(map(str, SPARK_MIN))
    return f"PySpark {pyspark} cannot pipeline Python functions; {needed} and newer can"


def site_obstacle(site: GearSite) -> str | None:
    """Say why a real-time gear cannot run at a place; None if it can."""
    version = version_obstacle(site.pyspark)
    if version is not None:
        return version
    if not site.is_local:
        return (
            f"Spark's master is {site.master}, so the shard may run on another machine than the "
            "driver, and its local files are there; the gear needs --master 'local[*]'"
        )
    if site.slots < SLOTS_MIN:
        return (
            f"Spark runs {site.slots} task at a time, and each gear has a task that runs all the "
            f"time; --master 'local[{SLOTS_MIN},4]' runs {SLOTS_MIN}"
        )
    if not site.pipelined:
        return (
            "Spark's setting spark.python.udf.pipelined.enabled is not true; give it to "
            "spark-submit with --conf"
        )
    if not site.our_daemon:
        return (
            "Spark's setting spark.python.daemon.module is not streamydb.pipeline.daemon, whose "
            "workers read what Spark sends at once; leave the setting out"
        )
    return None
