"""The sequencer's adapters to Kafka: the producer, the reader of results, the marker thread."""

from __future__ import annotations

from streamydb.sequencer.markers import MarkerLoop, run
from streamydb.sequencer.producer import (
    Appended,
    AppendError,
    AppendUnknownError,
    Producer,
    TransactionRefusedError,
)
from streamydb.sequencer.results import ResultReader, ResultTimeoutError

__all__ = [
    "AppendError",
    "AppendUnknownError",
    "Appended",
    "MarkerLoop",
    "Producer",
    "ResultReader",
    "ResultTimeoutError",
    "TransactionRefusedError",
    "run",
]
