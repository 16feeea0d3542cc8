"""Spark's projections: interpreted in small micro-batches, compiled in large ones.

Around each Python function Spark turns rows into another form. For that it writes a Java class in
every task, and finds that it has compiled it before: writing it takes longer than interpreting some
hundred rows, and a hundred thousand rows are turned faster by the class.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from py4j.protocol import Py4JError

__all__ = ["COMPILED", "FACTORY_MODE", "INTERPRETED", "AdaptiveSettings"]

log = logging.getLogger("streamydb.pipeline")

FACTORY_MODE: Final = "spark.sql.codegen.factoryMode"
"""Spark's setting: FALLBACK compiles, and interprets only if that fails; NO_CODEGEN interprets."""

COMPILED: Final = "FALLBACK"
INTERPRETED: Final = "NO_CODEGEN"
_FEW: Final = 10_000
"""Records of a micro-batch whose projections are interpreted."""


class AdaptiveSettings:
    """Chooses for the next micro-batch by what the last one has read.

    Which one is chosen changes no result, so a choice may come late, or in the midst of a batch.
    """

    def __init__(self) -> None:
        """Nothing is chosen before `follow`."""
        self._set: Callable[[str, str], None] | None = None
        self._mode = ""

    def follow(self, set_conf: Callable[[str, str], None]) -> None:
        """Choose for a query that has been started; ``set_conf`` changes its settings."""
        self._set, self._mode = set_conf, ""

    def note(self, records: int) -> None:
        """Choose, after a micro-batch that has read so many records."""
        mode = INTERPRETED if records <= _FEW else COMPILED
        if self._set is None or mode == self._mode:
            return
        try:
            self._set(FACTORY_MODE, mode)
            self._mode = mode
        except Py4JError as error:
            log.warning("Spark's projections stay as they are: %s", error)
            self._set = None
