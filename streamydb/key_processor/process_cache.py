"""The records and the plan that one process keeps for the shard whose task it runs next.

The host of a process has one, and gives it to each of its shards. Nothing depends on what is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from streamydb.key_processor.inbox import LastRecords
from streamydb.planner.core import LastPlan


@dataclass(slots=True, frozen=True)
class ProcessCache:
    """The records that the process has opened last, and the plan that it has made last."""

    records: LastRecords = field(default_factory=LastRecords)
    plan: LastPlan = field(default_factory=LastPlan)

    def forget(self) -> None:
        """Free the memory: all shards have planned, or another process goes on."""
        self.records.forget()
        self.plan.forget()
