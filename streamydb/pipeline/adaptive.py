"""Spark's settings that follow the size of micro-batches.

Projections: interpreted in small micro-batches, compiled in large ones. Around each Python function
Spark turns rows into another form. For that it writes a Java class in every task, and finds that it
has compiled it before: writing it takes longer than interpreting some hundred rows, and a hundred
thousand rows are turned faster by the class. A micro-batch that brings only feedback tells nothing
of the load, so it changes nothing: after one backlog the next finds the classes compiled.

Where several shards have shuffles, tasks: under little load one executes and one formats, under
much as many as there are shards. A task costs some milliseconds of processor time, whatever it has
to do. When nothing comes there are many, too, since what comes next may be a backlog.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from py4j.protocol import Py4JError

log = logging.getLogger("streamydb.pipeline")

FACTORY_MODE: Final = "spark.sql.codegen.factoryMode"
"""Spark's setting: FALLBACK compiles, and interprets only if that fails; NO_CODEGEN interprets."""

COMPILED: Final = "FALLBACK"
INTERPRETED: Final = "NO_CODEGEN"
_INTERPRETED_RECORDS: Final = 10_000  # records of a micro-batch whose projections are interpreted
SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
"""Spark's setting: into how many tasks a shuffle goes that names no number.

State is partitioned by a number that Spark remembers from the first start of a query, whatever this
setting is later.
"""

_ONE_TASK_RECORDS: Final = 4_000  # of so many transactions one task executes a micro-batch
_ONE_TASK_US: Final = 20_000
"""And if executing takes so much processor time at most: a procedure may take a millisecond."""


class BatchSize(NamedTuple):
    """The size of a micro-batch.

    Attributes:
        records: how many it has read, of all topics.
        transactions: how many of them are of the log.
        executing_us: processor time of its executing tasks together, in microseconds; 0 where no
            shuffle leads to them.
    """

    records: int
    transactions: int
    executing_us: int


class AdaptiveSettings:
    """Chooses settings for the next micro-batch by what the last one was.

    Which are chosen changes no result, so a choice may come late, or in the midst of a batch.
    """

    def __init__(self) -> None:
        self._set: Callable[[str, str], None] | None = None
        self._shards = 1
        self._chosen: dict[str, str] = {}
        self._given: Collection[str] = ()

    def follow(
        self, set_conf: Callable[[str, str], None], shards: int, given: Collection[str] = ()
    ) -> None:
        """Choose for a query that has been started.

        Args:
            set_conf: changes a setting of the query.
            shards: of the database; so many tasks the query has begun with.
            given: settings that the user has given, and nobody changes.
        """
        self._set, self._shards, self._given = set_conf, shards, given
        self._chosen = {SHUFFLE_PARTITIONS: str(shards)}

    def note(self, size: BatchSize) -> None:
        """Choose, after a micro-batch."""
        if size.transactions:
            few = size.records <= _INTERPRETED_RECORDS
            self._choose(FACTORY_MODE, INTERPRETED if few else COMPILED)
        one = 0 < size.transactions <= _ONE_TASK_RECORDS and size.executing_us <= _ONE_TASK_US
        self._choose(SHUFFLE_PARTITIONS, "1" if one else str(self._shards))

    def _choose(self, name: str, value: str) -> None:
        if self._set is None or name in self._given or self._chosen.get(name) == value:
            return
        try:
            self._set(name, value)
            self._chosen[name] = value
        except Py4JError as error:
            log.warning("Spark's settings stay as they are: %s", error)
            self._set = None
