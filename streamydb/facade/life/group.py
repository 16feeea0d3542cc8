"""The conflict group of one transaction in its plan (pure).

A group is a connected component. Two transactions are joined if they touch a common key that
somebody in the plan writes (by its name, or in a range), or if they have one id. A pipeline finds
the same groups with `sorter.planner`. A plan that one partition executes is not divided; then all
of it runs in order.

The written keys are numbered in order, so that a range is a span of numbers and is never copied.
So the work and the memory grow as the names in the plan, however wide its ranges are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import msgspec
from msgspec import UNSET

from streamydb.facade.life.evidence import PlanMember
from streamydb.records import CONSTRAINTS_KEY, Transaction, keys

MEMBERS_SHOWN = 100
KEYS_SHOWN = 100

_Span: TypeAlias = tuple[int, int]
"""The numbers of written keys that lie side by side, half open."""


class GroupMember(msgspec.Struct):
    """Another transaction of the group; ``keys``: those that both touch and somebody writes.

    It has none if only others connect the two. At most `KEYS_SHOWN` are shown, in order; ``more``:
    there are others.
    """

    seq: int
    id: str | None
    keys: list[str]
    more: bool = False


class ConflictGroup(msgspec.Struct):
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


def group_of(
    members: Sequence[PlanMember],
    seq: int,
    *,
    declared: bool = False,
    may_read: Callable[[str], bool] | None = None,
) -> ConflictGroup:
    """Return the group of the transaction at a seq in its plan, whose members are in order.

    ``declared``: there were constraints before the plan; what writes after the first declaration
    reads them too. ``may_read``: only these keys connect transactions; None: all.
    """
    plan = _Plan(members, declared=declared, may_read=may_read)
    own = next(i for i, each in enumerate(members) if each.seq == seq)
    root = plan.joined.root(own)
    others = [i for i in range(len(members)) if i != own and plan.joined.root(i) == root]
    near = sorted(others, key=lambda i: abs(members[i].seq - seq))[:MEMBERS_SHOWN]
    members_shown = [plan.shown(i, own) for i in sorted(near)]
    before = sum(i < own for i in others)
    return ConflictGroup(len(others) + 1, before, len(others) - before, members_shown)


class _DisjointSets:
    """Disjoint sets of numbers; the smallest of a set stands for it."""

    def __init__(self, count: int) -> None:
        self._parent = list(range(count))

    def root(self, one: int) -> int:
        parent = self._parent
        while parent[one] != one:
            parent[one] = one = parent[parent[one]]
        return one

    def join(self, one: int, other: int) -> None:
        first, second = self.root(one), self.root(other)
        self._parent[max(first, second)] = min(first, second)


class _Plan:
    """The written keys that the transactions of a plan touch, and the sets of both."""

    def __init__(
        self,
        members: Sequence[PlanMember],
        *,
        declared: bool,
        may_read: Callable[[str], bool] | None,
    ) -> None:
        self._members = members
        named = list(_named_keys(members, declared=declared, may_read=may_read))
        written = {key for each in named for key, writes in each.items() if writes}
        self._keys = sorted(key.encode() for key in written)
        numbers = {key.decode(): number for number, key in enumerate(self._keys)}
        self._spans = [
            _merge_spans([*_key_spans(each, numbers), *self._ranges(member.txn)])
            for each, member in zip(named, members, strict=True)
        ]
        self.joined = _DisjointSets(len(members) + len(self._keys))
        self._join_ids()
        self._join_keys()

    def shown(self, number: int, own: int) -> GroupMember:
        member = self._members[number]
        common: list[str] = []
        for first, end in _common_spans(self._spans[own], self._spans[number]):
            left = KEYS_SHOWN + 1 - len(common)
            common += [key.decode() for key in self._keys[first : min(end, first + left)]]
            if len(common) > KEYS_SHOWN:
                break
        name = None if member.txn is None else member.txn.id
        return GroupMember(member.seq, name, common[:KEYS_SHOWN], len(common) > KEYS_SHOWN)

    def _ranges(self, txn: Transaction | None) -> Iterator[_Span]:
        for start, end in () if txn is None else txn.ranges:
            first, last = bisect_left(self._keys, start), bisect_left(self._keys, end)
            if first < last:
                yield first, last

    def _join_ids(self) -> None:
        first: dict[str, int] = {}
        for place, each in enumerate(self._members):
            if each.txn is not None:
                self.joined.join(place, first.setdefault(each.txn.id, place))

    def _join_keys(self) -> None:
        """Join each transaction with its spans, and the keys within a span with each other, once.

        ``reached``: the sets of keys that are joined so far lie side by side, so from any key a
        later one that is not joined with it is found without passing those between.
        """
        base, reached = len(self._members), _Chains(len(self._keys))
        for place, spans in enumerate(self._spans):
            for first, end in spans:
                self.joined.join(place, base + first)
                for key in reached.up_to(first, end):
                    self.joined.join(base + key, base + key + 1)


class _Chains:
    """Numbers of which some are joined with the next one."""

    def __init__(self, count: int) -> None:
        self._last = list(range(count))

    def up_to(self, first: int, end: int) -> Iterator[int]:
        """Join all from one number to before another; yield those that were not joined yet."""
        at = self._last_of(first)
        while at < end - 1:
            yield at
            self._last[at] = at + 1
            at = self._last_of(at)

    def _last_of(self, one: int) -> int:
        last = self._last
        while last[one] != one:
            last[one] = one = last[last[one]]
        return one


def _named_keys(
    members: Sequence[PlanMember], *, declared: bool, may_read: Callable[[str], bool] | None
) -> Iterator[dict[str, bool]]:
    """Yield the keys that each transaction names, and whether it writes them."""
    declarers = (m.seq for m in members if m.txn is not None and m.txn.constrain is not UNSET)
    since = 0 if declared else next(declarers, members[-1].seq)
    for each in members:
        names = {} if each.txn is None else dict(keys(each.txn))
        if each.seq > since and any(names.values()):
            names.setdefault(CONSTRAINTS_KEY, False)
        yield names if may_read is None else {k: w for k, w in names.items() if may_read(k)}


def _key_spans(named: dict[str, bool], numbers: dict[str, int]) -> Iterator[_Span]:
    for key in named:
        if key in numbers:
            yield numbers[key], numbers[key] + 1


def _merge_spans(spans: list[_Span]) -> list[_Span]:
    """Return the same numbers in order, in spans that do not overlap."""
    merged: list[_Span] = []
    for first, end in sorted(spans):
        if merged and first <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((first, end))
    return merged


def _common_spans(ones: Sequence[_Span], others: Sequence[_Span]) -> Iterator[_Span]:
    i = j = 0
    while i < len(ones) and j < len(others):
        first, end = max(ones[i][0], others[j][0]), min(ones[i][1], others[j][1])
        if first < end:
            yield first, end
        if ones[i][1] < others[j][1]:
            i += 1
        else:
            j += 1
