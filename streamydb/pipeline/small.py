"""The sizes of a pipeline that takes little memory: for laptops and small machines.

It executes the same in the same order: only how much it takes at a time is less. Java's second
compiler is off, as its code and its work take 50 MB, and everything but the serial collector, whose
own tables are smaller.
"""

from __future__ import annotations

from typing import Final

SMALL_MAX_OFFSETS: Final = 20_000
"""Most transactions read in one micro-batch."""

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
    "-XX:+UseSerialGC -XX:InitialHeapSize=96m -XX:MinHeapSize=32m -XX:NewSize=16m "
    "-XX:MaxNewSize=24m -XX:MinHeapFreeRatio=10 -XX:MaxHeapFreeRatio=20 -XX:-ShrinkHeapInSteps "
    "-XX:MetaspaceSize=96m -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=64m -XX:-UsePerfData"
)
"""Options of Spark's JVM, instead of those in spark-defaults.conf."""
