"""Confirmations: the groups of the real-time gear that are in Kafka as a whole (pure).

Spark's sink does not say when Kafka has taken a record. So the driver reads the outputs back and
compares them with what the worker says it has handed to Spark, by hashes. A group is confirmed when
all its outputs, and those of the groups before it, were seen. `ResolvedGroups` is the driver's rule
of what it announces.

No two outputs have the same bytes, except tombstones: a key that was deleted twice has two. So the
hash of a tombstone is made of that of the change before it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from streamydb.frames.hashing import hash_span
from streamydb.frames.jit import brief, leaf
from streamydb.frames.table import Bytes, Ragged, Texts
from streamydb.pipeline.realtime.messages import Executed
from streamydb.pipeline.realtime.output_tables import Hashes, Ints, OutputTables
from streamydb.records.names import FOLLOW_UP_MARK
from streamydb.txn_processor.outputs import CHANGES, DIGESTS, FOLLOW_UPS, OutputRecords

__all__ = [
    "ANNOUNCE_S", "BUSY_ANNOUNCE_S", "BUSY_OUTPUTS", "Announcements", "Confirmations",
    "ResolvedGroups", "SeenOutputs", "group_hashes", "output_hashes", "tombstone_hashes",
]  # fmt: skip

_KEY_SEED: Final = 0x6B65_79
_VALUE_SEED: Final = 0x7661_6C
_TOPIC_FACTOR: Final = 0x9E37_79B9_7F4A_7C15
_TOMBSTONE_FACTOR: Final = 0xD6E8_FEB8_6659_FD93
_DELETION: Final = np.frombuffer(b'{"op":"d"', np.uint8)
_FOLLOW_UP: Final = np.frombuffer(FOLLOW_UP_MARK, np.uint8)

ANNOUNCE_S: Final = 0.01
"""So long after a resolved record the next one is announced."""

BUSY_OUTPUTS: Final = 24
"""Outputs of a group that many clients have written: a plain write has two, a transfer three."""

BUSY_ANNOUNCE_S: Final = 0.025
"""So long after a resolved record the next one is announced if such a group waits for it."""

_HASH_BYTES: Final = 8
_DELETES_MAX: Final = 8
_EARLY_MAX: Final = 100_000
"""Outputs that are seen before the worker has told of them, at most; the newest are kept."""


def output_hashes(topic: int, keys: Ragged, values: Ragged) -> Hashes:
    """Return a hash of each output record of a transaction processor; shape (n,).

    ``topic``: as `txn_processor.outputs` numbers them. A tombstone stands behind its change.
    """
    hashes = _hashes_of(topic, keys.texts(), values.texts())
    if topic == CHANGES:
        rows = np.flatnonzero(values.lengths() == 0)
        hashes[rows] = tombstone_hashes(hashes[rows], hashes[rows - 1])
    return hashes


def group_hashes(outputs: Iterable[OutputRecords]) -> Hashes:
    """Return the hashes of all outputs of a group that are read back; shape (n,).

    Digests are not: nobody waits for them.
    """
    found = [
        output_hashes(records.topic, records.keys, records.values)
        for records in outputs
        if records.topic != DIGESTS
    ]
    return np.concatenate([np.zeros(0, np.uint64), *found])


def tombstone_hashes(tombstones: Hashes, changes: Hashes) -> Hashes:
    """Return the hashes of tombstones, of their own and those of the changes before them."""
    return tombstones ^ changes * np.uint64(_TOMBSTONE_FACTOR)


@leaf
def _hash(topic: int, keys: Texts, values: Texts, row: int) -> np.uint64:
    """The hash of an output; a tombstone has another one in the end."""
    key = hash_span(keys.data, keys.offsets[row], keys.offsets[row + 1], np.uint64(_KEY_SEED))
    value = hash_span(
        values.data, values.offsets[row], values.offsets[row + 1], np.uint64(_VALUE_SEED)
    )
    return key * np.uint64(3) ^ value ^ np.uint64(topic + 1) * np.uint64(_TOPIC_FACTOR)


@brief
def _hashes_of(topic: int, keys: Texts, values: Texts) -> Hashes:
    n = len(keys.offsets) - 1
    out = np.empty(n, np.uint64)
    for row in range(n):
        out[row] = _hash(topic, keys, values, row)
    return out


@leaf
def _begins(values: Texts, row: int, begin: Bytes) -> bool:
    """Return whether a value begins with some bytes."""
    start = values.offsets[row]
    if values.offsets[row + 1] - start < len(begin):
        return False
    for j in range(len(begin)):
        if values.data[start + j] != begin[j]:
            return False
    return True


@brief
def _seen(topics: Ints, keys: Texts, values: Texts) -> tuple[Hashes, Ints]:
    """The hashes of those records that are outputs; and the row, and the place among the hashes,
    of each deletion and tombstone; shape (m, 2).
    """
    n = len(topics)
    hashes, deletions = np.empty(n, np.uint64), np.empty((n, 2), np.int64)
    count, m = 0, 0
    for row in range(n):
        if topics[row] == FOLLOW_UPS and not _begins(values, row, _FOLLOW_UP):
            continue
        hashes[count] = _hash(topics[row], keys, values, row)
        if topics[row] == CHANGES and (
            values.offsets[row] == values.offsets[row + 1] or _begins(values, row, _DELETION)
        ):
            deletions[m, 0], deletions[m, 1] = row, count
            m += 1
        count += 1
    return hashes[:count], deletions[:m]


class SeenOutputs:
    """The hashes of outputs as they come from Kafka, those of a partition in their order.

    Another writer's record of the same key may stand between a change and its tombstone. So a
    tombstone belongs to the newest change before it that deletes its key and has none yet.
    """

    def __init__(self) -> None:
        self._deletes: dict[bytes, list[int]] = {}

    def hashes(self, topics: Ints, keys: Ragged, values: Ragged) -> Hashes:
        """Return the hashes of the next outputs, as `output_hashes` has them.

        Most records of the log are transactions of clients; these are no outputs.
        """
        if not len(topics):
            return np.zeros(0, np.uint64)
        hashes, deletions = _seen(topics, keys.texts(), values.texts())
        places: list[int] = []
        changes: list[int] = []
        for row, place in deletions.tolist():
            key = keys[row]
            if values.offsets[row] < values.offsets[row + 1]:
                self._deletes.setdefault(key, []).append(int(hashes[place]))
                del self._deletes[key][:-_DELETES_MAX]
            elif (change := self._of_tombstone(key)) is not None:
                places.append(place)
                changes.append(change)
        if places:
            hashes[places] = tombstone_hashes(hashes[places], np.array(changes, np.uint64))
        return hashes

    def _of_tombstone(self, key: bytes) -> int | None:
        """Take the hash of the change before a tombstone; None if it came before the first record
        that was read.
        """
        changes = self._deletes.get(key)
        if changes is None:
            return None
        change = changes.pop()
        if not changes:
            del self._deletes[key]
        return change


@dataclass(slots=True)
class _Group:
    """A group, and how many of its outputs were not seen yet."""

    said: Executed
    left: int


class Confirmations:
    """Groups that wait for their outputs to be seen, in order.

    Outputs may be seen before the worker's message about them has come. A copy that another
    pipeline has written counts as well, because it is the same bytes.
    """

    def __init__(self) -> None:
        self._groups: dict[int, _Group] = {}
        self._next = 0
        self._outputs = OutputTables(_EARLY_MAX)

    def __len__(self) -> int:
        return len(self._groups)

    def add(self, said: Executed) -> list[Executed]:
        """Note a group; return the groups that are confirmed now."""
        left = self._outputs.expect(np.frombuffer(said.outputs, np.uint64), self._next)
        self._groups[self._next] = _Group(said, left)
        self._next += 1
        return self._confirmed()

    def see(self, outputs: Hashes) -> list[Executed]:
        """Note outputs that are in Kafka, by their hashes; return the groups confirmed by them."""
        if not len(outputs):
            return []
        first = next(iter(self._groups), self._next)
        seen = self._outputs.see(outputs, range(first, self._next))
        for at in np.flatnonzero(seen).tolist():
            self._groups[first + at].left -= int(seen[at])
        return self._confirmed()

    def _confirmed(self) -> list[Executed]:
        found: list[Executed] = []
        while self._groups:
            number, group = next(iter(self._groups.items()))
            if group.left:
                break
            del self._groups[number]
            found.append(group.said)
        return found


class ResolvedGroups:
    """The driver's rule: up to which group all outputs are written, and what it announces.

    Attributes:
        last: the last group that is confirmed; None: there is none.
    """

    def __init__(self) -> None:
        self.last: Executed | None = None
        self._confirmations = Confirmations()

    def add(self, said: Executed) -> Executed | None:
        """Note a group; return the one whose resolved record is to be appended now, if any."""
        return self._resolved(self._confirmations.add(said))

    def see(self, outputs: Hashes) -> Executed | None:
        """Note outputs that are in Kafka, by their hashes; return as `add` does."""
        return self._resolved(self._confirmations.see(outputs))

    def _resolved(self, confirmed: Sequence[Executed]) -> Executed | None:
        """Return the newest of these groups that has a resolved record."""
        if confirmed:
            self.last = confirmed[-1]
        return next((said for said in reversed(confirmed) if said.resolved is not None), None)


class Announcements:
    """The driver's pace: a resolved record is announced at once, but one that comes soon after
    another waits a moment, and then the newest suffices.

    Each costs as many requests as the changes have partitions, and each reader takes them in. So
    while many clients write, it waits longer.
    """

    def __init__(self) -> None:
        self._waiting: bytes | None = None
        self._announced_s = -math.inf
        self._apart_s = ANNOUNCE_S

    def due(self, group: Executed | None, now_s: float) -> bytes | None:
        """Note a group that is confirmed, if any; return what is to be announced now."""
        if group is not None and group.resolved is not None:
            self._waiting = group.resolved
            is_busy = len(group.outputs) >= BUSY_OUTPUTS * _HASH_BYTES
            self._apart_s = BUSY_ANNOUNCE_S if is_busy else ANNOUNCE_S
        if now_s < self._announced_s + self._apart_s:
            return None
        return self.rest(now_s)

    def rest(self, now_s: float) -> bytes | None:
        """Return what waits, which is announced now."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._announced_s = now_s
        return waiting

    def wait_s(self, now_s: float) -> float:
        """Return in how many seconds `due` is to be asked again, whatever comes meanwhile."""
        return ANNOUNCE_S if now_s < self._announced_s + 2 * self._apart_s else math.inf
