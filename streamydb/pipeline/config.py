"""The configuration of a run of the pipeline."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from streamydb.limits import PLAN_RECORDS_MAX, max_offsets
from streamydb.records.gears import database_obstacle
from streamydb.settings import Settings


@dataclass(frozen=True, slots=True)
class PipelineConfig:
    """One run of the pipeline.

    ``checkpoint``: the folder of the query's state. ``local``: the folder of the executors'
    caches. ``spark_conf``: Spark settings on top of ours. ``name``: of one of several pipelines
    over one log. ``standby``: it follows until it is needed.
    ``procedures``: folders and files with the code of stored procedures, on every executor.
    ``start``: a state or a backup that a new checkpoint begins with.
    ``store``: the URL of a checkpoint in an object store, of which ``checkpoint`` is then a local
    copy. ``poll_records``: how many records of the log Kafka's client unpacks at once; None: as
    many as usual. ``large_offset``: of the large record for which there is room, -1: there is none;
    the real-time gear begins behind it. ``gears``: a real-time gear runs beside the micro-batch
    gear, if it can. ``small``: its JVM takes little memory.
    """

    settings: Settings
    checkpoint: Path
    master: str | None
    local: Path
    status_file: Path | None = None
    plan_limit: int = PLAN_RECORDS_MAX
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    name: str = ""
    standby: bool = False
    procedures: tuple[Path, ...] = ()
    start: Path | None = None
    store: str | None = None
    poll_records: int | None = None
    large_offset: int = -1
    gears: bool = False
    small: bool = False

    @property
    def gears_asked(self) -> bool:
        """True if both gears were asked for; the setting's default asks for nothing."""
        return self.gears and "gear" in self.settings.model_fields_set

    @property
    def may_have_gears(self) -> bool:
        """True if nothing that is known before Spark starts keeps the real-time gear off."""
        of = self.settings
        return self.gears and database_obstacle(of.shards, of.partitions, of.grouping) is None

    def records_max(self, shards: int) -> int:
        """Return how many records of the log a micro-batch reads at most."""
        return self.settings.max_offsets_per_trigger or max_offsets(shards)

    @property
    def location(self) -> str:
        """The checkpoint's folder, or its URL."""
        return self.store or str(self.checkpoint)

    @property
    def large_record(self) -> Path:
        """The file that names a record which has ended the JVM (see `pipeline.large_records`).

        Of a checkpoint in a store there is only a copy here, which every start makes anew.
        """
        return (self.local if self.store else self.checkpoint) / "large-record.json"


def default_local(home: Path | None = None) -> Path:
    """Return the default folder of the executors' caches."""
    return (home or Path(tempfile.gettempdir())) / "streamydb-cache"


SMALL_MAX_OFFSETS: Final = 20_000  # most transactions read in one micro-batch

SMALL_SPARK: Final = {
    "spark.driver.memory": "512m",
    "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB": "32",
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "50",
    "spark.sql.ui.retainedExecutions": "5",
}
"""Settings of Spark."""

SMALL_JAVA: Final = (
    "-XX:+UseSerialGC -XX:InitialHeapSize=64m -XX:MinHeapSize=32m -XX:MinHeapDeltaBytes=4m "
    "-XX:NewSize=8m -XX:MaxNewSize=8m -XX:MinHeapFreeRatio=5 -XX:MaxHeapFreeRatio=10 "
    "-XX:-ShrinkHeapInSteps -XX:MetaspaceSize=96m -XX:TieredStopAtLevel=1 "
    "-XX:Tier3InvocationThreshold=600 -XX:Tier3MinInvocationThreshold=300 "
    "-XX:Tier3CompileThreshold=6000 -XX:ReservedCodeCacheSize=64m "
    "-XX:StackShadowPages=10 -XX:-UsePerfData -Dio.netty.allocator.numDirectArenas=1"
)
"""Options of Spark's JVM, instead of those in spark-defaults.conf.

A heap never becomes smaller than the first one, the first compiler takes what is called often, and
each of some 250 threads writes ten pages ahead of its stack, not twenty.
"""
