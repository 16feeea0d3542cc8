"""The objects that the steps of a run of the pipeline share."""

from __future__ import annotations

from dataclasses import dataclass, field

from streamydb.kafka.patience import Patience
from streamydb.pipeline.adaptive import AdaptiveSettings
from streamydb.pipeline.config import PipelineConfig
from streamydb.pipeline.jvm import Jvm
from streamydb.pipeline.progress import PipelineMetrics, StatusWriter
from streamydb.pipeline.reports import PartReports
from streamydb.pipeline.shutdown import Ending


@dataclass(frozen=True, slots=True)
class Parts:
    """The objects that the steps of a run share.

    ``reports``: tells people and programs which part this pipeline has.
    """

    config: PipelineConfig
    status: StatusWriter
    ending: Ending
    jvm: Jvm
    metrics: PipelineMetrics
    patience: Patience
    adaptive: AdaptiveSettings
    reports: PartReports = field(init=False)

    def __post_init__(self) -> None:
        reports = PartReports(self.config.name, self.status, self.metrics)
        object.__setattr__(self, "reports", reports)
