"""The rows that Spark hands to the real-time gear: their records, in both forms."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from streamydb.pipeline.realtime.core import TailRecord
from streamydb.pipeline.realtime.rows import records_of
from tests.support.packs import pack_rows
from tests.support.seeds import seeds


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(20, 8)))
def test_packed_rows_and_rows_of_nulls_have_the_same_records(seed: int) -> None:
    dice = random.Random(seed)
    records = [
        TailRecord(i << 33, dice.randrange(1 << 43), dice.choice([None, b"", dice.randbytes(i)]))
        for i in range(dice.randint(0, 30))
    ]
    cuts = sorted(dice.choices(range(len(records) + 1), k=4))
    parts = [records[i:j] for i, j in zip([0, *cuts], [*cuts, len(records)], strict=True)]
    fields = [("offset", pa.int64()), ("append_ms", pa.int64()), ("value", pa.binary())]
    none = dict.fromkeys(TailRecord._fields)
    with_nulls = [each for record in records for each in (record._asdict(), none)]
    nulls = pa.RecordBatch.from_pylist(with_nulls, pa.schema(fields))
    for batch, rows in ((pack_rows(parts), 5), (nulls, len(with_nulls))):
        at = dice.randint(0, rows)
        assert records_of(batch.slice(0, at)) + records_of(batch.slice(at)) == records
