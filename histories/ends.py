"""Keys with an end: each is there before it and absent from it on, for everybody alike.

The end of a key is a removal that nobody asked for, so the checker of cycles sees it as one whose
outcome nobody was told (`with_ends`). When it has to happen follows from numbers (`check_ends`): a
key ends at the commit time of what gave it the end plus its time to live, and whatever has that
commit time or a later one finds it absent. A read has the commit time of its seq, which lies
between those that verdicts tell.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

from msgspec.structs import replace

from histories.records import (
    AppendOperation,
    Get,
    History,
    Operation,
    ReadOperation,
    ScanOperation,
    Seen,
    WatchOperation,
)
from histories.violations import NOBODY, Anomaly, shown

__all__ = ["check_ends", "with_ends"]

_NEVER: Final = 2**63


class _Change(NamedTuple):
    """A transaction that wrote a key, and until when the key is there.

    ``end_ms``: the commit time from which on it is absent, 0 if the transaction removes it; None:
    nobody can tell.
    """

    seq: int
    operation: int
    end_ms: int | None


class _Sight(NamedTuple):
    """A key as an operation saw it at a seq; ``before`` its own writes, if it has any."""

    key: str
    there: bool
    before: bool = False
    told: Seen | None = None


def with_ends(history: History) -> History:
    """Return a history in which nobody removes, perhaps, each key that may end."""
    begun: dict[str, int] = {}
    for operation in history.operations:
        for key in _given(operation):
            begun.setdefault(key, operation.invoked_ns)
    if not begun:
        return history
    removals = [
        Operation(
            client=NOBODY, session=0, invoked_ns=invoked_ns, outcome="unknown",
            request=AppendOperation("", removes=[key]),
        )
        for key, invoked_ns in begun.items()
    ]  # fmt: skip
    whole = History.of([*map(replace, history.operations), *removals])
    whole.watches, whole.deliveries = history.watches, history.deliveries
    return whole


def check_ends(history: History) -> list[Anomaly]:
    """Find keys that are there after their end, or gone before it, and ends that differ."""
    return list(_Ends(history).run())


class _Ends:
    """The ends of the keys of one history."""

    def __init__(self, history: History) -> None:
        self.operations = [op for op in history.operations if op.client != NOBODY]
        self.history = history
        self.times = sorted(
            {
                (op.told.seq, op.told.ts_ms): op.index
                for op in self.operations
                if op.told and op.told.seq is not None and op.told.ts_ms is not None
            }.items()
        )
        self.seqs = [seq for (seq, _), _ in self.times]
        self.keys = sorted({key for op in self.operations for key in _given(op)})
        self.changes: dict[str, list[_Change]] = {key: [] for key in self.keys}
        self.unsure: set[str] = set()
        self.told = self._told()

    def run(self) -> Iterator[Anomaly]:
        """Look at everything."""
        for ((_, earlier), one), ((_, later), other) in pairwise(self.times):
            if later < earlier:
                yield self._anomaly("commit-time-back", "a later seq is earlier", one, other)
        for operation in self.operations:
            self._note(operation)
        for changes in self.changes.values():
            changes.sort()
        for operation in self.operations:
            answer = operation.told
            if answer is None or answer.seq is None or not answer.committed:
                continue
            for sight in self._sights(operation):
                yield from self._judge(operation, sight, answer.seq)
        for watch in self.history.watches:
            yield from self._watched(watch)

    def _told(self) -> dict[tuple[str, int], int]:
        """The ends that reads tell, by key and version."""
        told = {}
        for operation in self.operations:
            for sight in self._sights(operation):
                if sight.told is not None and sight.told.version and sight.told.expires_ms:
                    told[sight.key, sight.told.version] = sight.told.expires_ms
        return told

    def _note(self, operation: Operation) -> None:
        """Take note of the keys that an operation wrote, or may have written."""
        request, answer = operation.request, operation.told
        if not isinstance(request, AppendOperation) or operation.refused:
            return
        touched = {*request.appends, *request.touches, *request.removes} & self.changes.keys()
        for key in touched:
            if answer is None or answer.seq is None:
                self.unsure.add(key)
                continue
            end_ms = self.told.get((key, answer.seq))
            ttl_ms = _given(operation).get(key)
            if key in request.removes:
                end_ms = 0
            elif ttl_ms is None:
                end_ms = _NEVER
            elif answer.ts_ms is not None:
                end_ms = answer.ts_ms + ttl_ms
            self.changes[key].append(_Change(answer.seq, operation.index, end_ms))

    def _sights(self, operation: Operation) -> Iterator[_Sight]:
        """The keys with an end that an operation saw, or saw to be absent."""
        answer, request = operation.told, operation.request
        if answer is None or not answer.committed:
            return
        ranges = dict(answer.ranges)
        if isinstance(request, ScanOperation):
            ranges[request.prefix] = answer.seen
        elif isinstance(request, Get | ReadOperation):
            for key, seen in answer.seen.items():
                yield _Sight(key, seen.value is not None, told=seen)
        for prefix, entries in ranges.items():
            for key in self._under(prefix):
                told = entries.get(key) if isinstance(request, ScanOperation) else None
                yield _Sight(key, key in entries, told=told)
        if isinstance(request, AppendOperation):
            for key in (*request.removes, *request.touches):
                yield _Sight(key, there=True, before=True)
            for prefix, known in request.unchanged.items():
                for key in self._under(prefix):
                    yield _Sight(key, key in known.seen, before=True)

    def _under(self, prefix: str) -> Iterator[str]:
        for at in range(bisect_left(self.keys, prefix), len(self.keys)):
            if not self.keys[at].startswith(prefix):
                return
            yield self.keys[at]

    def _judge(self, operation: Operation, sight: _Sight, seq: int) -> Iterator[Anomaly]:
        """Hold what was seen of a key against its end."""
        last = self._last(sight.key, seq - sight.before)
        if last is None or last.end_ms is None:
            return
        told = sight.told
        if (
            told is not None
            and told.version == last.seq
            and (told.expires_ms or _NEVER) != (last.end_ms)
        ):
            what = f"{sight.key} ends at {last.end_ms} ms, it was told {told.expires_ms}"
            yield self._anomaly("end-differs", what, last.operation, operation.index)
        elif sight.there and last.end_ms and self._at_least(seq) >= last.end_ms:
            what = f"{sight.key} ended at {last.end_ms} ms, it is there at {self._at_least(seq)}"
            yield self._anomaly("there-after-its-end", what, last.operation, operation.index)
        elif not sight.there and self._at_most(seq) < last.end_ms:
            what = f"{sight.key} ends at {last.end_ms} ms, it is gone at {self._at_most(seq)}"
            yield self._anomaly("gone-before-its-end", what, last.operation, operation.index)

    def _last(self, key: str, seq: int) -> _Change | None:
        """The last write of a key up to a seq; None: nobody can tell."""
        changes = [] if key in self.unsure else self.changes.get(key, [])
        at = bisect_right(changes, seq, key=lambda change: change.seq)
        return changes[at - 1] if at else None

    def _at_least(self, seq: int) -> int:
        """The commit time that a seq has at least."""
        at = bisect_right(self.seqs, seq)
        return self.times[at - 1][0][1] if at else 0

    def _at_most(self, seq: int) -> int:
        """The commit time that a seq has at the most."""
        at = bisect_left(self.seqs, seq)
        return self.times[at][0][1] if at < len(self.seqs) else _NEVER

    def _watched(self, watch: WatchOperation) -> Iterator[Anomaly]:
        """Hold the removals that a watcher was told against the ends, and look for missing ones."""
        there: dict[str, int] = {}
        seq = watch.since
        for delivery in self.history.deliveries.get(watch.watcher, ()):
            seq = delivery.seq
            for change in delivery.changes:
                last = self._last(change.key, seq)
                if change.after is not None:
                    there[change.key] = seq
                    continue
                there.pop(change.key, None)
                if last is None or not last.end_ms:
                    continue
                if self._at_most(seq) < last.end_ms:
                    what = f"{change.key} ends at {last.end_ms} ms, watcher {watch.watcher} was "
                    what += f"told at seq {seq}, {self._at_most(seq)} ms"
                    yield self._anomaly("end-told-early", what, last.operation)
                elif self._at_least(seq - 1) >= last.end_ms:
                    what = f"{change.key} ended at {last.end_ms} ms, watcher {watch.watcher} was "
                    what += f"told at seq {seq} only"
                    yield self._anomaly("end-told-late", what, last.operation)
        for key in there:
            last = self._last(key, seq)
            if last is not None and last.end_ms and self._at_least(seq) >= last.end_ms:
                what = f"{key} ended at {last.end_ms} ms, watcher {watch.watcher} was told nothing"
                yield self._anomaly("end-not-told", what, last.operation)

    def _anomaly(self, name: str, what: str, *places: int) -> Anomaly:
        lines = [what, *(shown(self.history.operations[place]) for place in places)]
        return Anomaly(name, "\n  ".join(lines), places)


def _given(operation: Operation) -> Mapping[str, int]:
    """Return the times to live that an operation gives to keys, unless it was refused."""
    request = operation.request
    if not isinstance(request, AppendOperation) or operation.refused:
        return {}
    return request.ttls
