"""The objects that the steps of a run of the pipeline share."""

from __future__ import annotations

import math
from dataclasses import dataclass

from streamydb.kafka.patience import Patience
from streamydb.local.folder import GearStatus
from streamydb.pipeline.adaptive import AdaptiveSettings
from streamydb.pipeline.config import PipelineConfig
from streamydb.pipeline.jvm import Jvm
from streamydb.pipeline.progress import PipelineMetrics, StatusWriter
from streamydb.pipeline.realtime.gear import GEARS
from streamydb.pipeline.shutdown import Ending
from streamydb.pipeline.standby.coordinator import StandbyReport

__all__ = ["Parts"]


@dataclass(frozen=True, slots=True)
class Parts:
    """The objects that the steps of a run share."""

    config: PipelineConfig
    status: StatusWriter
    ending: Ending
    jvm: Jvm
    metrics: PipelineMetrics
    patience: Patience
    adaptive: AdaptiveSettings

    def show(self, view: StandbyReport) -> None:
        """Tell people and programs which part this pipeline has."""
        leads = view.role == "leading"
        self.metrics.ready.set(view.ready or leads)
        self.metrics.behind.set(0 if leads else math.nan if view.behind is None else view.behind)
        self.metrics.behind_s.set(0 if leads else view.lag_ms / 1000)
        self.metrics.leads.set(leads)
        self.metrics.epoch.set(view.epoch)
        self.metrics.diverged.set(view.alarm is not None)
        self.status.update(  # after the metrics, as after a micro-batch
            name=self.config.name or None, role=view.role, epoch=view.epoch, alarm=view.alarm,
            ready=view.ready if view.role == "following" else None,
            lag_ms=view.lag_ms if view.role == "following" else None,
            behind=view.behind if view.role == "following" else None,
        )

    def show_gear(self, view: GearStatus) -> None:
        """Tell people and programs which gear leads."""
        shown = self.status.status.gear
        for gear in GEARS:
            self.metrics.gear.labels(gear).set(gear == view.gear)
        if shown is not None and shown.gear != view.gear:
            self.metrics.gear_shifts.inc()
        self.status.update(gear=view)
