"""The rows that Spark hands to the worker of the real-time gear, as columns of the records.

They come in one of two forms: a record a row, and rows of nulls between them; or many records in a
row, as one array, which may be empty. Rows of nulls and empty arrays only push out what was before
them.
"""

from __future__ import annotations

import pyarrow as pa

__all__ = ["record_columns"]


def record_columns(batch: pa.RecordBatch) -> list[pa.Array]:
    """Return the columns of the records of a batch, each of shape (n,).

    The first column of a record is never null.
    """
    columns: list[pa.Array] = batch.columns
    if len(columns) == 1 and pa.types.is_list(columns[0].type):
        columns = columns[0].flatten().flatten()
    valid = columns[0].is_valid()
    return [column.filter(valid) for column in columns] if columns[0].null_count else columns
