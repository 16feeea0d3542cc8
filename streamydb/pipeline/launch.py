"""Start Spark beside the rest of a start, which mostly waits for Kafka."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession

__all__ = ["SparkLaunch"]

log = logging.getLogger("streamydb.pipeline")

_WORKERS: Final = 2
"""How many Python workers one chain of the query's stages needs at a time."""


class SparkLaunch:
    """A session that is made in a thread of its own, and its first Python workers with it.

    Args:
        make: makes the session; an error of it is raised by `session`.
        abandon: ends what was begun, when nobody takes the session.
    """

    def __init__(self, make: Callable[[], SparkSession], abandon: Callable[[], None]) -> None:
        """Begin."""
        self._make = make
        self._abandon = abandon
        self._made: SparkSession | BaseException | None = None
        self._ready = threading.Event()
        self._taken = False
        thread = threading.Thread(target=self._run, name="streamydb-spark", daemon=True)
        thread.start()

    def session(self) -> SparkSession:
        """Wait for the session; it is the caller's from then on."""
        self._ready.wait()
        if isinstance(self._made, SparkSession):
            self._taken = True
            return self._made
        raise self._made or RuntimeError("there is no session")

    def close(self) -> None:
        """End what was begun, if nobody has taken the session."""
        if not self._taken:
            self._abandon()

    def _run(self) -> None:
        try:
            self._made = self._make()
        except BaseException as error:  # noqa: BLE001 - `session` raises it
            self._made = error
            return
        finally:
            self._ready.set()
        _preload(self._made)


def _preload(spark: SparkSession) -> None:
    """Have the Python workers of this machine load our code before the first batch needs it."""
    if not str(spark.sparkContext.master).startswith("local"):
        return
    numbers = spark.range(0, _WORKERS, 1, _WORKERS)
    try:
        numbers.mapInArrow(_load, "id LONG").write.format("noop").mode("overwrite").save()
    except Exception as error:  # noqa: BLE001 - the first batch does without, or says it better
        log.info("the Python workers were not started ahead: %s", str(error).splitlines()[0])


def _load(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from streamydb.pipeline.daemon import load  # in a worker

    load()  # a daemon of Spark's own has loaded nothing
    yield from batches
