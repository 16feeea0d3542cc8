"""The role of a pipeline, lead or follow, as its shards know it.

The role comes through the pipeline's own feedback topic, so all shards learn of it in the same
micro-batch, and a batch that is repeated learns the same: what is released when remains a function
of what was read. Correctness does not depend on it, because any two pipelines write the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from streamydb.columns.messages import Role

__all__ = ["ShardRole"]


class ShardRole(msgspec.Struct):
    """The role that a shard was given last.

    ``at``: the offset of that record. ``leads``: execute everything and write. ``covered``: up to
    this seq all outputs have been written by some pipeline, so there is nothing to write.
    """

    at: int = -1
    leads: bool = True
    covered: int = 0

    def hear(self, roles: Iterable[Role]) -> bool:
        """Take over the newest of some roles; return True if there was one.

        Then it has to be said anew what is resolved: whoever led before may have died between two
        partitions, and the driver wants to know how far its shards are.
        """
        before = self.at
        for role in roles:
            self.covered = max(self.covered, role.covered)
            if role.at > self.at:
                self.at, self.leads = role.at, role.leads
        return self.at > before

    def may_release(self, seq: int, limit: int) -> int:
        """Return how many records may be released after ``seq``, of at most ``limit``.

        What is covered is released apart from the rest, so that a plan is silent as a whole or not
        at all.
        """
        if seq < self.covered:
            return min(limit, self.covered - seq)
        return limit if self.leads else 0

    def is_silent(self, seq: int) -> bool:
        """Return True if what is released after ``seq`` has been written already."""
        return seq < self.covered
