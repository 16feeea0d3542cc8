"""The gears of a pipeline: who may have two, and the report on which of them leads.

A pipeline tells it in its status file, and with its messages in `<db>.control`: so whoever may read
that topic learns it, from any machine.
"""

from __future__ import annotations

from typing import Final

import msgspec

MICRO_BATCH: Final = "micro-batch"
REAL_TIME: Final = "real-time"
GEARS: Final = (MICRO_BATCH, REAL_TIME)


class GearStatus(msgspec.Struct, frozen=True):
    """The gear of a pipeline that leads, and how far the other one is behind it."""

    gear: str
    """micro-batch or real-time."""
    since_ms: int
    """Since when, in ms since 1970."""
    why: str
    """For people."""
    worker: int | None = None
    """The process of the real-time gear; None if that does not lead."""
    obstacle: str | None = None
    """Why this pipeline has no real-time gear; None: it has one."""
    behind: int | None = None
    """How many seqs the other gear lacks; None: it does not run, or has not told."""
    behind_records: int | None = None
    """How many records of the log the other gear has not read of what this one has; likewise."""


def database_obstacle(shards: int, partitions: int, grouping: str) -> str | None:
    """Say why a database has no real-time gear; None if it may have one."""
    has = [
        *([f"{shards} shards"] if shards > 1 else []),
        *([f"{partitions} partitions of the log"] if partitions > 1 else []),
        *([f"grouping={grouping}"] if grouping != "planner" else []),
    ]
    if not has:
        return None
    needed = "it needs one shard, one partition of the log and grouping=planner"
    return f"the database has {' and '.join(has)}; {needed}"
