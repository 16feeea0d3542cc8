"""The leases layer: one worker at a time settles, though the first falls asleep with the lease.

    make up
    python examples/leases.py [URL]

It prints:

    ann holds the lease; bob waits
    ann falls asleep; after a second the lease is bob's, with a greater token
    ann wakes up and writes: refused, the lease is over
    the ledger refuses the smaller token, too
    bob settles: {'by': 'bob', 'total': 60}
"""

from __future__ import annotations

import time

from common import clear, connect
from streamydb.client import CheckFailedError
from streamydb_layers.errors import LeaseHeldError
from streamydb_layers.leases import Lease, Leases

TTL_MS = 1_000


class Ledger:
    """Something outside the database that takes fencing tokens."""

    def __init__(self) -> None:
        """Nobody has written yet."""
        self.greatest = 0

    def write(self, lease: Lease) -> bool:
        """Refuse whoever has a smaller token than somebody before."""
        self.greatest = max(self.greatest, lease.token)
        return lease.token == self.greatest


def main() -> None:
    """Lose a lease, and do no harm."""
    with connect() as db:
        clear(db, "lease/example/")
        db.transaction(updates=[
            {"op": "put", "key": f"account/{name}", "value": value}
            for name, value in (("a", 10), ("b", 20), ("c", 30))
        ])  # fmt: skip
        leases, ledger = Leases(db, "example"), Ledger()
        ann = leases.acquire("settlement", "ann", ttl_ms=TTL_MS)
        try:
            leases.acquire("settlement", "bob")
        except LeaseHeldError as error:
            print(f"{error.holder} holds the lease; bob waits")
        time.sleep(TTL_MS / 1000)
        bob = leases.acquire("settlement", "bob", timeout_s=30)
        if ledger.write(bob) and bob.token > ann.token:
            print("ann falls asleep; after a second the lease is bob's, with a greater token")
        try:
            ann.guard(db.atomic().put("settled", {"by": "ann"})).commit()
        except CheckFailedError:
            print("ann wakes up and writes: refused, the lease is over")
        if not ledger.write(ann):
            print("the ledger refuses the smaller token, too")
        bob = leases.renew(bob, ttl_ms=60_000)
        total = sum(entry.value for entry in db.scan("account/"))
        bob.guard(db.atomic().put("settled", {"by": "bob", "total": total})).commit()
        print(f"bob settles: {db.get('settled')}")
        leases.release(bob)


if __name__ == "__main__":
    main()
