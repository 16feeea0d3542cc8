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
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from streamydb.frames.hashing import hash_ragged
from streamydb.frames.table import Ragged
from streamydb.pipeline.realtime.messages import Executed
from streamydb.records.names import FOLLOW_UP_MARK
from streamydb.txn_processor.outputs import CHANGES, DIGESTS, FOLLOW_UPS, OutputRecords

__all__ = [
    "ANNOUNCE_S", "Announcements", "Confirmations", "ResolvedGroups", "SeenOutputs",
    "group_hashes", "output_hashes", "tombstone_hash",
]  # fmt: skip

Hashes = npt.NDArray[np.uint64]

_MASK: Final = (1 << 64) - 1
_KEY_SEED: Final = 0x6B65_79
_VALUE_SEED: Final = 0x7661_6C
_TOPIC_FACTOR: Final = 0x9E37_79B9_7F4A_7C15
_TOMBSTONE_FACTOR: Final = 0xD6E8_FEB8_6659_FD93
_DELETE: Final = b'{"op":"d"'
ANNOUNCE_S: Final = 0.01
_DELETES_MAX: Final = 8
_EARLY_MAX: Final = 100_000
"""Outputs that are seen before the worker has told of them, at most; the newest are kept."""


def output_hashes(topic: int, keys: Ragged, values: Ragged) -> Hashes:
    """Return a hash of each output record of a transaction processor; shape (n,).

    ``topic``: as `txn_processor.outputs` numbers them. A tombstone stands behind its change.
    """
    hashes = _plain_hashes(topic, keys, values)
    if topic == CHANGES:
        rows = np.flatnonzero(values.lengths() == 0)
        hashes[rows] = [tombstone_hash(int(hashes[row]), int(hashes[row - 1])) for row in rows]
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


def _plain_hashes(topic: int, keys: Ragged, values: Ragged) -> Hashes:
    of_topic = np.uint64((topic + 1) * _TOPIC_FACTOR & _MASK)
    return hash_ragged(keys, _KEY_SEED) * np.uint64(3) ^ hash_ragged(values, _VALUE_SEED) ^ of_topic


def tombstone_hash(tombstone: int, change: int) -> int:
    """Return the hash of a tombstone, of its own hash and that of the change before it."""
    return (tombstone ^ change * _TOMBSTONE_FACTOR) & _MASK


class SeenOutputs:
    """The hashes of outputs as they come from Kafka, those of a partition in their order.

    Another writer's record of the same key may stand between a change and its tombstone. So a
    tombstone belongs to the newest change before it that deletes its key and has none yet.
    """

    def __init__(self) -> None:
        self._deletes: dict[bytes, list[int]] = {}

    def hashes(self, topic: int, keys: Sequence[bytes], values: Sequence[bytes]) -> list[int]:
        """Return the hashes of the next outputs of a topic, as `output_hashes` has them.

        Most records of the log are transactions of clients; these are no outputs.
        """
        if topic == FOLLOW_UPS:
            rows = [row for row, value in enumerate(values) if value.startswith(FOLLOW_UP_MARK)]
            keys, values = [keys[row] for row in rows], [values[row] for row in rows]
        hashes: list[int] = _plain_hashes(topic, Ragged.of(keys), Ragged.of(values)).tolist()
        if topic != CHANGES:
            return hashes
        for row, (key, value) in enumerate(zip(keys, values, strict=True)):
            if not value:
                hashes[row] = self._of_tombstone(key, hashes[row])
            elif value.startswith(_DELETE):
                self._deletes.setdefault(key, []).append(hashes[row])
                del self._deletes[key][:-_DELETES_MAX]
        return hashes

    def _of_tombstone(self, key: bytes, plain: int) -> int:
        changes = self._deletes.get(key)
        if changes is None:  # the change came before the first record that was read
            return plain
        change = changes.pop()
        if not changes:
            del self._deletes[key]
        return tombstone_hash(plain, change)


@dataclass(slots=True)
class _Group:
    """A group, and how many of its outputs were not seen yet."""

    said: Executed
    left: int


class _EarlyOutputs:
    """Outputs that were seen before the worker has told of them, the newest ones.

    Most are written by others, and the worker never tells of them. So the older half is dropped
    when there are too many; this gear's own wait here for some milliseconds.
    """

    def __init__(self) -> None:
        self._newer: Counter[int] = Counter()
        self._older: Counter[int] = Counter()
        self._count = 0

    def add(self, output: int) -> None:
        self._newer[output] += 1
        self._count += 1
        if self._count > _EARLY_MAX // 2:
            self._older, self._newer, self._count = self._newer, Counter(), 0

    def take(self, output: int) -> bool:
        """Take one of this hash away; return False if there is none."""
        for outputs in (self._older, self._newer):
            if output in outputs:
                outputs[output] -= 1
                if not outputs[output]:
                    del outputs[output]
                return True
        return False


class Confirmations:
    """Groups that wait for their outputs to be seen, in order.

    Outputs may be seen before the worker's message about them has come. A copy that another
    pipeline has written counts as well, because it is the same bytes.
    """

    def __init__(self) -> None:
        self._groups: deque[_Group] = deque()
        self._waiting: dict[int, deque[_Group]] = {}
        self._early = _EarlyOutputs()

    def __len__(self) -> int:
        return len(self._groups)

    def add(self, said: Executed) -> list[Executed]:
        """Note a group; return the groups that are confirmed now."""
        group = _Group(said, 0)
        for output in np.frombuffer(said.outputs, np.uint64).tolist():
            if not self._early.take(output):
                group.left += 1
                self._waiting.setdefault(output, deque()).append(group)
        self._groups.append(group)
        return self._confirmed()

    def see(self, outputs: Iterable[int]) -> list[Executed]:
        """Note outputs that are in Kafka, by their hashes; return the groups confirmed by them."""
        for output in outputs:
            groups = self._waiting.get(output)
            if groups is None:
                self._early.add(output)
                continue
            groups.popleft().left -= 1
            if not groups:
                del self._waiting[output]
        return self._confirmed()

    def _confirmed(self) -> list[Executed]:
        found: list[Executed] = []
        while self._groups and not self._groups[0].left:
            found.append(self._groups.popleft().said)
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

    def see(self, outputs: Iterable[int]) -> Executed | None:
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

    Each costs as many requests as the changes have partitions, and each reader takes them in.
    """

    def __init__(self) -> None:
        self._waiting: bytes | None = None
        self._announced_s = -math.inf

    def due(self, group: Executed | None, now_s: float) -> bytes | None:
        """Note a group that is confirmed, if any; return what is to be announced now."""
        if group is not None and group.resolved is not None:
            self._waiting = group.resolved
        if now_s < self._announced_s + ANNOUNCE_S:
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
        return ANNOUNCE_S if now_s < self._announced_s + 2 * ANNOUNCE_S else math.inf
