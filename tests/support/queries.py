"""Queries without the processes that run them, for tests that are about something else."""

from __future__ import annotations

from streamydb.sql.pool import QueryPool
from streamydb.sql.worker import Job, QueryOutcome, run


async def in_this_process(_: QueryPool, job: Job, timeout_s: float) -> QueryOutcome:
    """Run a query here, in the place of `QueryPool.run`: the processes have tests of their own."""
    assert timeout_s > 0
    return run(job)
