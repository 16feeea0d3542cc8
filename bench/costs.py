"""The processor time and memory that the parts of a measured system take."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psutil

__all__ = ["Used", "cpu_of", "pss_mb", "tree_cpu_s"]


@dataclass(frozen=True, slots=True)
class Used:
    """Processor time in seconds, by part.

    Attributes:
        pipeline: driver, JVM and Python workers.
        brokers: all brokers together.
        client: this process, which makes the load and reads what comes of it.
    """

    pipeline: float = 0.0
    brokers: float = 0.0
    client: float = 0.0

    def __sub__(self, other: Used) -> Used:
        """Return what was used since."""
        return Used(
            self.pipeline - other.pipeline, self.brokers - other.brokers,
            self.client - other.client,
        )  # fmt: skip

    def __add__(self, other: Used) -> Used:
        """Return both together."""
        return Used(
            self.pipeline + other.pipeline, self.brokers + other.brokers,
            self.client + other.client,
        )  # fmt: skip

    def us_each(self, count: int) -> dict[str, float]:
        """Return microseconds of each part for each of `count` transactions."""
        parts = {"pipeline": self.pipeline, "brokers": self.brokers, "client": self.client}
        return {name: round(1e6 * seconds / count, 2) for name, seconds in parts.items()}


def cpu_of(pid: int) -> float:
    """Return the processor time of a process in seconds; 0 if it has ended."""
    try:
        return float(sum(psutil.Process(pid).cpu_times()[:2]))
    except psutil.Error:
        return 0.0


def tree_cpu_s(parent: psutil.Process) -> float:
    """Return the processor time of a process and its children, ended ones included."""
    try:
        times = parent.cpu_times()
        ended = float(times.children_user + times.children_system)
        running = [process.pid for process in parent.children()]
    except psutil.NoSuchProcess:
        return 0.0
    return ended + sum(map(cpu_of, (parent.pid, *running)))


def pss_mb(processes: Iterable[Any]) -> float:
    """Return the memory of processes in MB; a page that several share counts once in all."""
    total = 0
    for process in processes:
        with suppress(psutil.Error):
            total += process.memory_full_info().pss
    return total / 1e6
