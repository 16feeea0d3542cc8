"""Of Hadoop's thousand settings Spark sends those that are given. It sums up no shuffled rows.

Only another release of Spark can change it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.timeout(200), pytest.mark.long]
QUERY = """
import sys
from streamydb.pipeline.session import forget_defaults, session
spark = session("settings", "local[1]")
settings = spark.sparkContext._jsc.hadoopConfiguration()
before = settings.size()
forget_defaults(spark)
spark.conf.set("spark.sql.shuffle.partitions", "1")
rows = spark.readStream.format("rate").load().groupBy("value").count()
writer = rows.writeStream.format("noop").outputMode("update")
query = writer.option("checkpointLocation", sys.argv[1]).start()
query.processAllAvailable()
query.stop()
given = [name for name, _ in spark.sparkContext.getConf().getAll()]
print(before, settings.size(), sum(name.startswith("spark.hadoop.") for name in given))
entries = getattr(getattr(spark._jvm, "org.apache.spark.sql.internal.SQLConf$"), "MODULE$")
names = entries.getConfigEntries().iterator()
while names.hasNext():
    name = names.next().key()
    if "shuffle" in name and "hecksum" in name:
        print(name, spark.conf.get(name))
"""


def test_settings_of_a_query_that_has_run(tmp_path: Path) -> None:
    """Without settings of the user's: those have Spark make its session's state before."""
    done = subprocess.run(
        [sys.executable, "-c", QUERY, str(tmp_path / "checkpoint")],
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, *rest = done.stdout.splitlines()
    before, left, given = map(int, first.split())
    assert before > 500
    assert left <= given + 3, "Spark itself sets a few"
    sums = dict(line.split() for line in rest)
    assert len(sums) >= 2
    assert set(sums.values()) == {"false"}, "each alone has Spark sum up all that it shuffles"
