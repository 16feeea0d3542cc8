"""The records and the plan that this process keeps for the shard whose task it runs next.

Nothing depends on what is kept.
"""

from __future__ import annotations

from typing import Final

from streamydb.planner.last_plan import LastPlan
from streamydb.sorter.last_records import LastRecords

__all__ = ["LAST_PLAN", "LAST_RECORDS", "forget"]

LAST_RECORDS: Final = LastRecords()

LAST_PLAN: Final = LastPlan()


def forget() -> None:
    """Free the memory: all shards have planned, or another process goes on."""
    LAST_RECORDS.forget()
    LAST_PLAN.forget()
