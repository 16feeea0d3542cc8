#!/bin/sh
# Run a test of the pipeline with another Spark: in a copy of what is committed, with that PySpark over the packages of
# the environment, and with another version of the Kafka connector.
#   tools/spark_version.sh PYSPARK CONNECTOR        PYTHON=.venv/bin/python
set -eu

pyspark=$1
connector=$2
top=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-$top/.venv/bin/python}
test=tests/spark/test_pipeline.py::test_one_shard_runs_stops_resumes_and_refuses
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

git -C "$top" archive HEAD | tar -x -C "$scratch"
cd "$scratch"
sed -i.old "s/\(name=\"spark-sql-kafka-0-10_2.13\" rev=\)\"[^\"]*\"/\1\"$connector\"/" streamydb/local/ivy.xml
"$python" -m venv other
other/bin/pip install --quiet --no-deps "pyspark==$pyspark"
folder() { "$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }
folder "$python" > "$(folder other/bin/python)/environment.pth"
export PYTHONPATH="$scratch:$scratch/layers" STREAMYDB_CACHE="$scratch/cache"  # Ivy's reports in a cache are of one manifest
other/bin/python -c 'import pyspark; print("PySpark", pyspark.__version__)'
other/bin/python -m streamydb.local.jars --packages
other/bin/python -m pytest -q -p no:cacheprovider "$test"
