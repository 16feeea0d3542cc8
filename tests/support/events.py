"""Spark's event log: how many tasks each stage of each micro-batch had, and what they moved."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

__all__ = ["Events", "log_events"]


def log_events(folder: Path) -> list[str]:
    """Make the folder; return the arguments of a pipeline that logs there."""
    folder.mkdir()
    log = {"enabled": "true", "compress": "false", "dir": folder.as_uri()}
    return [f"--conf=spark.eventLog.{name}={value}" for name, value in log.items()]


class Events:
    """What Spark's event log says of each stage of each micro-batch.

    Attributes:
        tasks: how many it had.
        blocks: of each task, how many bytes it has handed to Spark for each block.
    """

    def __init__(self, folder: Path) -> None:
        self.tasks: list[list[int]] = []
        self.blocks: list[float] = []
        for file in sorted(folder.glob("*/events_*")):  # stages are counted anew in each session
            jobs: list[list[int]] = []
            count: dict[int, int] = defaultdict(int)
            for line in file.read_text().splitlines():
                event: dict[str, Any] = json.loads(line)
                if event["Event"] == "SparkListenerJobStart":
                    jobs.append(sorted(event["Stage IDs"]))
                elif event["Event"] == "SparkListenerTaskEnd":
                    written = event["Task Metrics"]["Shuffle Write Metrics"]
                    blocks = written["Shuffle Records Written"]
                    self.blocks += [written["Shuffle Bytes Written"] / blocks] if blocks else []
                    count[event["Stage ID"]] += 1
            self.tasks += [[count[stage] for stage in stages] for stages in jobs]

    def reading(self) -> list[int]:
        """How many tasks the first stage of each micro-batch had."""
        return [stages[0] for stages in self.tasks if stages[0]]
