"""The stateful functions as Spark sees them, apart from what they do.

At each start of a query Spark starts a Python process only to learn which states the query has.
That process needs this module alone: what a function does is packed, and opened when its first rows
come. So it imports neither numba nor Arrow, half a second of every start.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructType

Step: TypeAlias = Callable[[Any, str, Iterable[Row]], Iterator[Row]]
"""One step of a shard: of its MapState of blobs, its token, and what has come for it."""

# Types, not their names: what a text means, the JVM would be asked four times in each batch.
_BLOB_NAME: Final = StructType().add("name", StringType()).add("part", IntegerType())
_BLOB: Final = StructType().add("data", BinaryType())


class Stateful(StatefulProcessor):
    """transformWithState: a step whose state is blobs."""

    def __init__(self, step: Step) -> None:
        """Pack the step; it is an object of ours that can be pickled."""
        self._packed = pickle.dumps(step)

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getMapState("blobs", _BLOB_NAME, _BLOB)

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: Any,  # noqa: N803, ARG002
    ) -> Iterator[Row]:
        step: Step = pickle.loads(self._packed)  # noqa: S301 - the driver has packed it
        return step(self._state, key[0], rows)

    def close(self) -> None:
        """Nothing to close: what a step opens stays open for the next batch of this worker."""
