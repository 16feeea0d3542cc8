"""The planner finds the transactions of a plan that conflict, and assigns them to partitions.

Transactions that touch a common key that one of them writes form one *conflict group* (a
connected component), and so do transactions with one id, and one that names a range with those that
may write a key inside it. A group runs serially on one partition; groups run in parallel.
Queue-oriented, conflict-free planning: QueCC (Qadah and Sadoghi, Middleware 2018) and Q-Store
(EDBT 2020). Everything here is a pure function of the released records, so every
shard plans alike.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from streamydb.frames import program as p
from streamydb.frames.hashing import FACTOR, shift_of
from streamydb.frames.interning import intern
from streamydb.frames.jit import kernel, leaf
from streamydb.frames.record_rows import TimedRecords
from streamydb.frames.table import Bytes, starts_of
from streamydb.planner.plan import Plan
from streamydb.planner.ranges import links_of, ranges_of

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int32]

LEAST_WEIGHT: Final = 3_000
"""What a partition gets before one more is used, if there is so much. A transfer weighs 3: itself
and its keys. Each partition costs a block from and to every shard, whatever it has to do.
"""

_PYTHON_WEIGHT: Final = 100
"""Of a transaction that Python executes, beside its keys. So few of them are spread, too."""

_NO_LINKS: Final = np.empty((0, 2), np.int64)


@leaf
def _enter(
    ids: Hashes, valid: npt.NDArray[np.bool_], factor: np.uint64, table: Places, earlier: Ints
) -> None:
    """Note in a table, half of which stays free, where each id was last; see `frames.hashing`."""
    mask, shift = len(table) - 1, shift_of(len(table))
    for i in range(len(ids)):
        if not valid[i]:
            continue
        at = np.int64(ids[i] * factor >> shift)
        while table[at] >= 0 and ids[table[at]] != ids[i]:
            at = (at + 1) & mask
        earlier[i] = table[at]
        table[at] = i


@kernel
def _earlier(ids: Hashes, valid: npt.NDArray[np.bool_], factor: np.uint64) -> Ints:
    size = 16
    while size < 2 * len(ids):
        size *= 2
    table = np.full(size, -1, np.int32)
    earlier = np.full(len(ids), -1, np.int64)
    _enter(ids, valid, factor, table, earlier)
    return earlier


def earlier_with_same_id(ids: Hashes, valid: npt.NDArray[np.bool_]) -> Ints:
    """Return for each valid transaction the position of the one before it with the same id, or -1;
    (n,).

    ``ids``: hashes of the ids, the half that every shard knows. If two ids have one hash, their
    transactions are in one group for nothing; their home tells them apart. Clients choose the ids,
    so a number that only this process knows places them (`frames.hashing`); it changes no answer.
    """
    return _earlier(ids, valid, FACTOR)


@leaf
def _root(parent: Ints, i: int) -> int:
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i


@kernel
def _components(
    key_starts: Ints, slot: Ints, write: Bytes, slots: int, earlier: Ints, links: Ints
) -> tuple[Ints, int]:
    """Return each transaction's group, numbered in order of first member, and their number
    (union-find). ``links``: pairs of transactions that ranges make conflict.
    """
    n = len(key_starts) - 1
    written = np.zeros(slots, np.bool_)
    for k in range(len(slot)):
        if write[k] != 0:
            written[slot[k]] = True
    anchor = np.full(slots, -1, np.int64)
    parent = np.arange(n)
    for i in range(n):
        if earlier[i] >= 0:
            parent[_root(parent, i)] = _root(parent, earlier[i])
        for k in range(key_starts[i], key_starts[i + 1]):
            s = slot[k]
            if not written[s]:
                continue
            if anchor[s] < 0:
                anchor[s] = i
            else:
                a, b = _root(parent, anchor[s]), _root(parent, i)
                if a < b:
                    parent[b] = a
                else:
                    parent[a] = b
    for k in range(len(links)):
        a, b = _root(parent, links[k, 0]), _root(parent, links[k, 1])
        if a < b:
            parent[b] = a
        else:
            parent[a] = b
    group = np.full(n, -1, np.int64)
    count = 0
    for i in range(n):
        root = _root(parent, i)
        if group[root] < 0:
            group[root] = count
            count += 1
        group[i] = group[root]
    return group, count


@kernel
def _pack_groups(order: Ints, weight: Ints, procs: int, least: int) -> Ints:
    """Assign each group, largest first, to the least loaded partition (longest processing time
    first); one more partition is used when all have at least ``least``.
    """
    load = np.zeros(procs, np.int64)
    proc = np.empty(len(weight), np.int64)
    used = 1
    for g in order:
        best = 0
        for q in range(1, used):
            if load[q] < load[best]:
                best = q
        if load[best] >= least and used < procs:
            best = used
            used += 1
        proc[g] = best
        load[best] += weight[g]
    return proc


def plan_transactions(released: TimedRecords, earlier: Ints, procs: int) -> Plan:
    """Plan records in total order for ``procs`` executing partitions."""
    counts, keys = released.keys
    slot, first = intern(keys.hash, keys.key)
    n = len(counts)
    ranges = None if released.ranges is None else ranges_of(released, slot, first)
    if procs == 1:
        return Plan(slot, first, np.zeros(n, np.int64), 1, n, ranges)
    key_starts = starts_of(counts)
    links = _NO_LINKS
    if ranges is not None:
        links = links_of(ranges, np.repeat(np.arange(n), counts)[first])
    group, groups = _components(key_starts, slot, keys.write, len(first), earlier, links)
    members = np.bincount(group, minlength=groups)
    each = counts + np.where(released.kind == p.GENERIC, _PYTHON_WEIGHT, 1)
    weight = np.bincount(group, weights=each, minlength=groups).astype(np.int64)
    proc = _pack_groups(np.argsort(-weight, kind="stable"), weight, procs, LEAST_WEIGHT)
    return Plan(slot, first, proc[group], groups, int(members.max(initial=0)), ranges)
