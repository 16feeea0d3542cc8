"""A process that has loaded what the pipeline needs has no pandas, and never loads it by itself."""

from __future__ import annotations

import subprocess
import sys

SPARED = """
import sys
import numpy as np
import pyarrow as pa
from streamydb.pipeline.daemon import preload
preload()
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import LongType, StructField, StructType
import pyspark.testing.utils
from pyspark.util import PythonEvalType
schema = StructType([StructField("a", LongType())])
pandas_udf(lambda batches: batches, schema, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
pa.scalar(None, pa.int32())
column = pa.array([1, 2])
assert column.to_numpy(zero_copy_only=False).tolist() == [1, 2]
assert pa.array(np.arange(2)) == pa.array([0, 1])
assert pa.RecordBatch.from_arrays([column], ["a"]).to_pylist() == [{"a": 1}, {"a": 2}]
assert not [name for name in sys.modules if name.split(".")[0] == "pandas"]
import pandas
assert pandas.Series([1, 2]).sum() == 3  # whoever needs it finds it
"""


def test_neither_arrow_nor_pyspark_loads_pandas() -> None:
    found = subprocess.run(
        [sys.executable, "-c", SPARED], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
