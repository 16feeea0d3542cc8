"""Of Hadoop's thousand settings Spark sends those that are given. It sums up no shuffled rows."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.timeout(200)
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
entries = getattr(spark._jvm, "org.apache.spark.sql.internal.SQLConf$").__getattr__("MODULE$")
names = entries.getConfigEntries().iterator()
while names.hasNext():
    name = names.next().key()
    if "shuffle" in name and "hecksum" in name:
        print(name, spark.conf.get(name))
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The lines of a session with our settings, which has run a query."""
    checkpoint = tmp_path_factory.mktemp("settings") / "checkpoint"
    done = subprocess.run(
        [sys.executable, "-c", QUERY, str(checkpoint)],
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_defaults_of_hadoop_do_not_come_back_when_a_query_runs(said: list[str]) -> None:
    """Without settings of the user's: those have Spark make its session's state before."""
    before, left, given = map(int, said[0].split())
    assert before > 500
    assert left <= given + 3, "Spark itself sets a few"


def test_no_setting_has_spark_sum_up_shuffled_rows(said: list[str]) -> None:
    """Of several, each has it do that alone; a new release may bring one more."""
    found = dict(line.split() for line in said[1:])
    assert len(found) >= 2
    assert set(found.values()) == {"false"}, found
