"""A worker's wire whose other end is the test's, in place of Spark's JVM."""

from __future__ import annotations

import io
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

import pyarrow as pa
from pyspark.sql.pandas.serializers import ArrowStreamSerializer

from streamydb.pipeline.realtime.wire import Wire


@dataclass(frozen=True, slots=True)
class Ends:
    """``wire``: the worker's end. ``spark``: the other one."""

    wire: Wire
    spark: socket.socket

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Return the worker's input, as PySpark reads it."""
        serializer: Any = ArrowStreamSerializer()
        found: Iterator[pa.RecordBatch] = serializer.load_stream(self.wire)
        return found

    def send(self, data: bytes, sizes: Iterator[int]) -> threading.Thread:
        """Send ``data`` in parts of these sizes, then close; in a thread."""

        def run() -> None:
            at = 0
            while at < len(data):
                size = next(sizes)
                self.spark.sendall(data[at : at + size])
                at += size
            self.spark.shutdown(socket.SHUT_WR)

        thread = threading.Thread(target=run)
        thread.start()
        return thread


def stream_of(batches: Iterable[pa.RecordBatch]) -> bytes:
    """Return batches of one schema, as Spark's JVM writes them."""
    sink = io.BytesIO()
    first, *others = batches
    with pa.ipc.new_stream(sink, first.schema) as writer:
        for batch in (first, *others):
            writer.write_batch(batch)
    return sink.getvalue()


@contextmanager
def ends() -> Iterator[Ends]:
    """Yield both ends of a socket; they are closed afterwards."""
    ours, sparks = socket.socketpair()
    with ours, sparks, ours.makefile("rb", 64) as infile, ours.makefile("wb", 64) as outfile:
        wire = Wire(cast("BinaryIO", infile), cast("BinaryIO", outfile))
        try:
            yield Ends(wire, sparks)
        finally:
            wire.output.close()
