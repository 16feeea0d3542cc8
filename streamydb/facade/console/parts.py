"""The parts of the console that live as long as the facade."""

from __future__ import annotations

from typing import NamedTuple

from streamydb.facade.console.pipelines import PipelineWatch
from streamydb.facade.console.sampler import Sampler


class Console(NamedTuple):
    """The console of one facade: figures of the latest seconds, and the pipelines."""

    database: str
    sampler: Sampler
    watch: PipelineWatch
