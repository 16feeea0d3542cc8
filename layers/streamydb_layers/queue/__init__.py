"""A queue: items are claimed once at a time, by competing workers, in the order of their commits.

    jobs = Queue(client, "jobs")
    jobs.enqueue({"mail": "ann"})
    for claim in jobs.claim(10, timeout_s=60):
        send(claim.value)
        jobs.complete(claim)

In: values. Out: claims, which end when they are completed or released, or when their time is up,
by the commit timestamps of the database. Invariants: no item has two claims at a time; none is
lost; items are first claimed in the order in which they were committed.
"""

from __future__ import annotations

from streamydb_layers.queue.clients import AsyncQueue, Queue
from streamydb_layers.queue.core import CLAIM_ITEMS_MAX
from streamydb_layers.queue.items import Claim, Dead, Depth, Waiting

__all__ = ["CLAIM_ITEMS_MAX", "AsyncQueue", "Claim", "Dead", "Depth", "Queue", "Waiting"]
