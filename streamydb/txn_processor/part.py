"""The part of a plan that one partition executes, and the grants of all shards to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from streamydb import limits
from streamydb.frames.grant_rows import GrantedTransactions, RangeRows, SlotRows
from streamydb.frames.messages import Grant
from streamydb.frames.plans import PlanName
from streamydb.frames.sizes import only_system, over_by, text_bytes
from streamydb.frames.table import Array
from streamydb.frames.timeline import Timeline
from streamydb.frames.value_rows import ValueRows


class PlanPart(NamedTuple):
    """The part of a plan that some grants are, and what they say of it."""

    plan: PlanName
    proc: int
    silent: bool
    feedback_bytes_max: int
    makes_max: int

    @classmethod
    def of(cls, grant: Grant) -> PlanPart:
        """The part of which a grant is."""
        return cls(grant.plan, grant.proc, grant.silent, grant.feedback_bytes_max, grant.makes_max)


@dataclass(slots=True)
class PartGrants:
    """The grants of all shards to one partition: by shard and number, transactions and slots.

    ``over``: the plan is one transaction, whose keys hold too many bytes. Then their values are not
    kept, whoever sent them. ``ranges``: of each block. ``left_out``: the seq from which on ranges
    did not fit into the plan; 0: all did. ``more``: partitions of the plan beside those that
    execute. ``timeline``: where keys may end.
    """

    parts: dict[tuple[int, int], tuple[GrantedTransactions, SlotRows]] = field(default_factory=dict)
    ranges: list[RangeRows] = field(default_factory=list)
    left_out: int = 0
    timeline: Timeline | None = None
    over: bool = False
    met: int = 0
    members: int = 0
    more: set[int] = field(default_factory=set)

    def add(self, grant: Grant) -> None:
        """Take a grant of one shard."""
        left_out = grant.left_out or 0
        self.left_out = min(self.left_out or left_out, left_out or self.left_out)
        if grant.ranges is not None and len(grant.ranges):
            self.ranges.append(grant.ranges)
        self.members = grant.members
        if grant.more is not None:
            self.more.add(grant.more)
        self.parts[grant.shard, grant.chunk] = grant.txns, grant.slots
        self.timeline = grant.timeline or self.timeline
        now = 0 if self.timeline is None else int(self.timeline.ts[-1])
        if grant.alone:
            self.met += text_bytes(grant.slots, now)
            self.over |= grant.over or self.met > limits.TRANSACTION_VALUES_BYTES_MAX
        if self.over:
            self.parts = {
                at: (txns, _emptied(rows, now)) for at, (txns, rows) in self.parts.items()
            }

    def in_order(self) -> list[tuple[int, GrantedTransactions, SlotRows]]:
        """(shard, transactions, slots), the same whatever order they came in."""
        return [
            (shard, *grant) for (shard, _), grant in sorted(self.parts.items(), key=itemgetter(0))
        ]


def _emptied(slots: SlotRows, now: int) -> SlotRows:
    """Drop the values of all slots but those of the database's own keys,
    and those that have ended.
    """

    def values(chosen: Array) -> ValueRows:
        rows = slots.take(chosen)
        return ValueRows(rows.tag, rows.number, rows.version, rows.text)

    left = only_system(slots.key, values, over_by(slots, now))
    return SlotRows(
        left.tag,
        left.number,
        left.version,
        slots.slot,
        slots.covered,
        slots.written,
        left.text,
        slots.key,
    )
