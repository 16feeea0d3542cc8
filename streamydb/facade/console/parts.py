"""The parts of the console that live as long as the facade."""

from __future__ import annotations

from typing import NamedTuple

from streamydb.facade.console.pipelines import PipelineWatch
from streamydb.facade.console.sampler import Sampler

__all__ = ["Console"]


class Console(NamedTuple):
    """The console of one facade.

    Attributes:
        database: the name of the database.
        sampler: the figures of the latest seconds.
        watch: what the pipelines say of themselves and to each other.
    """

    database: str
    sampler: Sampler
    watch: PipelineWatch
