"""The part of a pipeline among others and the part of its gears, told to people and programs."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING

from streamydb.records.gears import GEARS, REAL_TIME, GearStatus

if TYPE_CHECKING:
    from streamydb.pipeline.progress import PipelineMetrics, StatusWriter
    from streamydb.pipeline.standby.report import StandbyReport


class PartReports:
    """Tells which part a pipeline has: it leads if one of its gears leads.

    Its micro-batch gear follows while the real-time gear leads, so neither report is enough alone.

    Args:
        name: of the pipeline; empty: it has none.
        status: the status file.
        metrics: for Prometheus.
    """

    def __init__(self, name: str, status: StatusWriter, metrics: PipelineMetrics) -> None:
        self._name = name
        self._status = status
        self._metrics = metrics
        self._lock = threading.Lock()
        self._part: StandbyReport | None = None
        self._gear: GearStatus | None = None

    def show(self, view: StandbyReport) -> None:
        """Tell the part of the micro-batch gear."""
        with self._lock:
            self._part = view
            self._show_part(view)

    def show_gear(self, view: GearStatus) -> None:
        """Tell which gear leads."""
        metrics = self._metrics.gears
        with self._lock:
            shown, self._gear = self._gear, view
            if self._part is not None:
                self._show_part(self._part)
            for gear in GEARS:
                leads = gear == view.gear
                metrics.leads.labels(gear).set(leads)
                metrics.behind.labels(gear).set(0 if leads else _known(view.behind))
                records = 0 if leads else _known(view.behind_records)
                metrics.behind_records.labels(gear).set(records)
            metrics.available.set(view.obstacle is None)
            if shown is not None and shown.gear != view.gear:
                metrics.shifts.inc()
            self._status.update(gear=view)

    def _show_part(self, view: StandbyReport) -> None:
        leads = view.role == "leading" or (self._gear is not None and self._gear.gear == REAL_TIME)
        metrics = self._metrics
        metrics.ready.set(view.ready or leads)
        metrics.behind.set(0 if leads else _known(view.behind))
        metrics.behind_s.set(0 if leads else view.lag_ms / 1000)
        metrics.leads.set(leads)
        metrics.epoch.set(view.epoch)
        metrics.diverged.set(view.alarm is not None)
        follows = view.role == "following" and not leads
        self._status.update(  # after the metrics, as after a micro-batch
            name=self._name or None,
            role="leading" if leads else view.role,
            epoch=view.epoch,
            alarm=view.alarm,
            ready=view.ready if follows else None,
            lag_ms=view.lag_ms if follows else None,
            behind=view.behind if follows else None,
        )


def _known(figure: int | None) -> float:
    return math.nan if figure is None else figure
