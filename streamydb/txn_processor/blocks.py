"""The blocks that carry outputs to the task which formats them."""

from __future__ import annotations

from typing import Any

from streamydb.columns.blocks import open_block
from streamydb.columns.encoding import Part, narrowed, pack_narrowed
from streamydb.columns.protocol import FORMAT
from streamydb.columns.table import Columns
from streamydb.txn_processor.outputs import Records, Rows, formatted

__all__ = ["open_output", "output_block", "output_parts"]


def output_parts(item: Rows | Records) -> list[Part]:
    """Outputs of an executing partition, for the task that formats them: a block in pieces."""
    if isinstance(item, Rows):
        return _packed(item.table, topic=item.topic, kind="rows")
    texts = Columns({}, {"key": item.keys, "value": item.values})
    return _packed(texts, topic=item.topic, partition=item.partition, kind="output")


def output_block(item: Rows | Records) -> bytes:
    """As `output_parts`, in one piece."""
    return b"".join(output_parts(item))


def _packed(table: Columns, **header: Any) -> list[Part]:
    return pack_narrowed([narrowed(table.flatten())], **header, format=FORMAT)


def open_output(block: bytes, database: str) -> Records:
    """The records of an output block of ``database``."""
    header, arrays = open_block(block)
    table = Columns.unflatten(arrays)
    if header["kind"] == "rows":
        return formatted(Rows(header["topic"], table), database)
    return Records(
        header["topic"], table.texts["key"], table.texts["value"], 0, header["partition"]
    )
