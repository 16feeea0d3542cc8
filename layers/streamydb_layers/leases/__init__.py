"""Leases: one holder at a time, for as long as it renews, with a fencing token.

    leases = Leases(client, "jobs")
    lease = leases.acquire("nightly", "worker-1", ttl_ms=30_000)
    lease.guard(client.atomic().put("report", "done")).commit()
    leases.release(lease)

In: names, holders, times. Out: leases with tokens. Invariants: no two leases of a name hold at one
commit time; of two leases of a name the later one has the greater token.
"""

from __future__ import annotations

from streamydb_layers.leases.clients import AsyncLeases, Leases
from streamydb_layers.leases.core import TTL_MS_MAX, Lease

__all__ = ["TTL_MS_MAX", "AsyncLeases", "Lease", "Leases"]
