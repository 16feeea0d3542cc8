"""The conflict group of one transaction in its plan (pure).

A group is a connected component. Two transactions are joined if they touch a common key that
somebody in the plan writes (by its name, or in a range), or if they have one id. A pipeline finds
the same groups with `sorter.planner`. A plan that one partition executes is not divided; then all
of it runs in order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from streamydb.facade.life.evidence import Member
from streamydb.records import CONSTRAINTS_KEY, Transaction, keys

__all__ = ["MEMBERS_SHOWN", "Group", "GroupMember", "group_of"]

MEMBERS_SHOWN = 100


class GroupMember(msgspec.Struct):
    """Another transaction of the group; ``keys``: those that both touch and somebody writes.

    It has none if only others connect the two.
    """

    seq: int
    id: str | None
    keys: list[str]


class Group(msgspec.Struct):
    """A conflict group.

    Attributes:
        transactions: how many are in it, this one too.
        waited_for: how many of them come before it: those were executed first.
        waited: how many come after it.
        members: the nearest of the others, at most `MEMBERS_SHOWN`, in order.
    """

    transactions: int
    waited_for: int
    waited: int
    members: list[GroupMember]


def group_of(members: Sequence[Member], seq: int, *, declared: bool = False) -> Group:
    """The group of the transaction at a seq.

    Args:
        members: its whole plan, in order.
        seq: the transaction.
        declared: there were constraints before the plan. What writes after the first declaration
            reads the constraints, too.
    """
    declarers = (m.seq for m in members if m.txn is not None and m.txn.constrain is not UNSET)
    since = 0 if declared else next(declarers, members[-1].seq)
    touched = {m.seq: _places(m.txn, declares=m.seq > since) for m in members}
    written = {place for found in touched.values() for place, writes in found.items() if writes}
    _add_ranges(members, touched, written)
    parent = {each.seq: each.seq for each in members}
    anchor: dict[str, int] = {}
    for each in members:
        for place in touched[each.seq].keys() & written:
            one, other = _root(parent, anchor.setdefault(place, each.seq)), _root(parent, each.seq)
            parent[max(one, other)] = min(one, other)
    root, own = _root(parent, seq), touched[seq].keys() & written
    others = [m for m in members if m.seq != seq and _root(parent, m.seq) == root]
    near = sorted(others, key=lambda m: abs(m.seq - seq))[:MEMBERS_SHOWN]
    shown = [
        GroupMember(m.seq, None if m.txn is None else m.txn.id,
                    sorted(p[1:] for p in own & touched[m.seq].keys() if p[0] == "k"))
        for m in sorted(near, key=lambda m: m.seq)
    ]  # fmt: skip
    before = sum(m.seq < seq for m in others)
    return Group(len(others) + 1, before, len(others) - before, shown)


def _add_ranges(
    members: Sequence[Member], touched: dict[int, dict[str, bool]], written: set[str]
) -> None:
    """Let transactions touch the written keys in their ranges, too."""
    keys_in_order = sorted(place[1:].encode() for place in written if place[0] == "k")
    for each in members:
        for start, end in () if each.txn is None else each.txn.ranges:
            for at in range(bisect_left(keys_in_order, start), len(keys_in_order)):
                if keys_in_order[at] >= end:
                    break
                touched[each.seq].setdefault("k" + keys_in_order[at].decode(), False)


def _places(txn: Transaction | None, *, declares: bool) -> dict[str, bool]:
    """The keys and the id that a transaction locks, and whether it writes there."""
    if txn is None:
        return {}
    touched = keys(txn)
    if declares and any(touched.values()):
        touched.setdefault(CONSTRAINTS_KEY, False)
    return {"i" + txn.id: True, **{"k" + key: writes for key, writes in touched.items()}}


def _root(parent: dict[int, int], seq: int) -> int:
    while parent[seq] != seq:
        parent[seq] = parent[parent[seq]]
        seq = parent[seq]
    return seq
