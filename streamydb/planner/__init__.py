"""The planner: divides what the sorter may release into conflict groups, and bounds their values.

In: the next records of the total order, and the sizes of the values that they touch. Out: a plan:
how many of the records it has, the partition of each, and the slot of each key.

Invariants: no two partitions of a plan share a key that one of them writes, or an id; every shard
makes the same plan.
"""

from __future__ import annotations
