"""Find out if a run of the pipeline can have a real-time gear, before its query starts."""

from __future__ import annotations

import logging

import pyspark
from pyspark.sql import SparkSession

from streamydb.errors import ConfigurationError
from streamydb.frames.shards import ShardConfig
from streamydb.pipeline.config import PipelineConfig
from streamydb.pipeline.realtime.requirements import OFF, SMALL, GearSite, site_obstacle
from streamydb.pipeline.session import DAEMON, OUR_DAEMON, PIPELINED, on_one_machine, task_slots
from streamydb.records.gears import database_obstacle

__all__ = ["gear_obstacle", "gear_site"]

log = logging.getLogger("streamydb.realtime")


def gear_site(spark: SparkSession) -> GearSite:
    master = str(spark.sparkContext.master)
    return GearSite(
        pyspark.__version__,
        master,
        on_one_machine(master),
        task_slots(spark),
        spark.conf.get(PIPELINED, "false") == "true",
        spark.conf.get(DAEMON, "") == OUR_DAEMON,
    )


def gear_obstacle(
    config: PipelineConfig, database: ShardConfig, partitions: int, spark: SparkSession
) -> str | None:
    """Return why this run has no real-time gear; None if it has one.

    Args:
        config: of the run.
        database: as it was founded.
        partitions: of the log now.
        spark: the running application.

    Raises ConfigurationError: both gears were asked for, and cannot be had. Who leaves the setting
    out gets one gear; so does a database whose log was given more partitions since it was founded,
    because what has run must start again.
    """
    if not config.gears:
        return SMALL if config.small and config.settings.gear == "both" else OFF
    why = database_obstacle(database.shards, database.partitions, database.grouping)
    why = why or site_obstacle(gear_site(spark))
    if why is not None and config.gears_asked:
        raise ConfigurationError(
            f"both gears are asked for (STREAMYDB_GEAR, --gear), and this pipeline can have one: "
            f"{why}. Leave the setting out, or say micro-batch"
        )
    if why is None and partitions > 1:
        why = f"the log was given more partitions: it has {partitions}, and the gear needs one"
    if why is not None:
        log.warning("this pipeline has one gear, the micro-batch gear: %s", why)
    return why
