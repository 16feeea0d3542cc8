"""The rows that Spark hands to the real-time gear: their records, in both forms."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from streamydb.pipeline.realtime.rows import record_columns


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(20))
def test_packed_rows_and_rows_of_nulls_have_the_same_records(seed: int) -> None:
    dice = random.Random(seed)
    rows = [(i, 2 * i, dice.choice([None, b"", b"x" * i])) for i in range(dice.randint(0, 30))]
    fields = [("a", pa.int64()), ("b", pa.int64()), ("c", pa.binary())]
    names = [name for name, _ in fields]
    structs = [dict(zip(names, row, strict=True)) for row in rows]
    cuts = sorted(dice.choices(range(len(rows) + 1), k=4))
    parts = [structs[i:j] for i, j in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    packs = pa.RecordBatch.from_arrays(
        [pa.array(parts, pa.list_(pa.struct(fields)))], names=["records"]
    )
    with_nulls = [each for row in structs for each in (row, dict.fromkeys(names))]
    nulls = pa.RecordBatch.from_pylist(with_nulls, pa.schema(fields))
    for batch, parts_of in ((packs, 5), (nulls, len(with_nulls))):
        at = dice.randint(0, parts_of)
        both = [record_columns(batch.slice(0, at)), record_columns(batch.slice(at))]
        halves = [[column.to_pylist() for column in half] for half in both]
        found = [first + second for first, second in zip(*halves, strict=True)]
        assert list(zip(*found, strict=True)) == rows
