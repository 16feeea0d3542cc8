"""Delete a pipeline's own feedback, a day after it was read.

A plan whose feedback is gone would never be finished, so Kafka's retention must not decide. What
every batch that the checkpoint can still go back to has read is not needed by this pipeline; a copy
of the checkpoint that is not older than a day can be gone on with, too.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from streamydb.errors import StreamyError
from streamydb.kafka.connection import RefusedError
from streamydb.kafka.upkeep import drop_before, keep_until_read
from streamydb.pipeline.background import Background
from streamydb.pipeline.repair import offsets_of

log = logging.getLogger("streamydb.pipeline")

KEPT_MS: Final = 86_400_000
"""How long feedback is kept after it was read, in ms: as old a copy of a checkpoint may be."""

_FIRST_S: Final = 60.0
_INTERVAL_S: Final = 600.0


def read_by_all(checkpoint: Path, topic: str) -> dict[int, int]:
    """Per partition, the offset up to which every batch that is still on record has read a topic.

    The first batch of all may have to be read again while there is no other.
    """
    numbers = [int(p.name) for p in (checkpoint / "query/offsets").glob("*") if p.name.isdigit()]
    if max(numbers, default=0) == 0:
        return {}
    return offsets_of(checkpoint, min(numbers)).get(topic, {})


class FeedbackKeeper(Background):
    """Sees to a pipeline's feedback topic in a thread of its own while the body runs.

    Args:
        connection: settings of confluent-kafka.
        topic: the feedback topic.
        checkpoint: the pipeline's folder.
        pull: brings into it what it has in a store.
    """

    def __init__(
        self,
        connection: Mapping[str, str],
        topic: str,
        checkpoint: Path,
        pull: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__("streamydb-feedback")
        self._connection = connection
        self._topic = topic
        self._checkpoint = checkpoint
        self._pull = pull

    def _run(self) -> None:
        self._try(self._mend)
        wait_s = _FIRST_S
        while not self._stop.wait(wait_s):
            self._try(self._drop)
            wait_s = _INTERVAL_S

    def _try(self, step: Callable[[], None]) -> None:
        try:
            step()
        except (StreamyError, RefusedError, OSError, ValueError) as error:
            log.warning("feedback in %s: %s; it grows meanwhile", self._topic, error)

    def _mend(self) -> None:
        if keep_until_read(self._connection, self._topic):
            log.info("%s is kept until it was read from now on", self._topic)

    def _drop(self) -> None:
        self._pull()
        read = read_by_all(self._checkpoint, self._topic)
        if read:
            drop_before(self._connection, self._topic, read, time.time_ns() // 10**6 - KEPT_MS)
