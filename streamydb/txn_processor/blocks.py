"""The blocks that carry outputs to the task which formats them."""

from __future__ import annotations

from streamydb.columns.blocks import FORMAT, open_block
from streamydb.columns.encoding import pack
from streamydb.columns.table import Columns
from streamydb.txn_processor.outputs import Records, Rows, formatted

__all__ = ["open_output", "output_block"]


def output_block(item: Rows | Records) -> bytes:
    """Outputs of an executing partition, for the task that formats them."""
    if isinstance(item, Rows):
        return pack(item.table.flatten(), topic=item.topic, kind="rows", format=FORMAT)
    texts = Columns({}, {"key": item.keys, "value": item.values})
    header = {"topic": item.topic, "partition": item.partition}
    return pack(texts.flatten(), **header, kind="output", format=FORMAT)


def open_output(block: bytes, database: str) -> Records:
    """The records of an output block of ``database``."""
    header, arrays = open_block(block)
    table = Columns.unflatten(arrays)
    if header["kind"] == "rows":
        return formatted(Rows(header["topic"], table), database)
    return Records(
        header["topic"], table.texts["key"], table.texts["value"], 0, header["partition"]
    )
