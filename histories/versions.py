"""Check the contract about numbers: seqs, versions, snapshots, sessions.

Nothing here proves anything that the other checkers do not; but where those need luck to meet an
anomaly, a number that is wrong shows it at once. Promised is (docs/semantics.md, docs/rest.md):
a version names one value; a later seq is later in real time; a snapshot shows for each key its last
write up to the snapshot's seq; reads of a session never go back; strong reads see all that was
answered before.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from histories.records import (
    Answer,
    AppendOperation,
    Get,
    History,
    Operation,
    ReadOperation,
    Request,
    ScanOperation,
    Seen,
    WriteOperation,
    frozen,
)
from histories.violations import Anomaly, shown

__all__ = ["check_numbers", "check_pages", "check_sessions"]


class _Version(NamedTuple):
    """A value of a key, from the operation that wrote or saw it."""

    seq: int
    value: str | None
    operation: int


def check_numbers(history: History) -> list[Anomaly]:
    """Find seqs and versions that contradict each other, real time, or what was read."""
    timelines, found = _timelines(history)
    return [*found, *_real_time(history), *_snapshots(history, timelines)]


def check_sessions(history: History) -> list[Anomaly]:
    """Find reads that show less than their session had seen, or than they asked for."""
    found: list[Anomaly] = []
    newest: dict[tuple[int, int], Operation] = {}
    for operation in history.operations:
        answer = operation.told
        if answer is None or answer.seq is None:
            continue
        session = (operation.client, operation.session)
        before = newest.get(session)
        asked = _asked(operation.request)
        if asked is not None and answer.seq < asked:
            message = f"shows seq {answer.seq}, asked for {asked} at least"
            found.append(_violation("min-version", message, operation))
        if asked is not None and before is not None and _seq(before) > answer.seq:
            name = "read-your-writes" if _is_write(before) else "monotonic-reads"
            found.append(_violation(name, "its session had seen more", before, operation))
        if before is None or answer.seq > _seq(before):
            newest[session] = operation
    return found


def check_pages(history: History) -> list[Anomaly]:
    """Find scans whose pages are of several snapshots, out of order, or not what was asked for."""
    found: list[Anomaly] = []
    for operation in history.operations:
        request, answer = operation.request, operation.told
        if not isinstance(request, ScanOperation) or answer is None:
            continue
        keys = [key.encode() for _, page in answer.pages for key in page]
        if len({seq for seq, _ in answer.pages}) > 1:
            found.append(_violation("torn-scan", "pages of several snapshots", operation))
        if any(one >= other for one, other in pairwise(keys)):
            found.append(_violation("scan-order", "keys are repeated or out of order", operation))
        if not all(key.startswith(request.prefix.encode()) for key in keys):
            found.append(_violation("scan-range", "a key lacks the prefix", operation))
        if any(len(page) > request.limit for _, page in answer.pages):
            found.append(_violation("scan-limit", "a page is too long", operation))
    return found


def _timelines(history: History) -> tuple[dict[str, list[_Version]], list[Anomaly]]:
    """The versions of each key by seq, from all who wrote or saw one."""
    found: list[Anomaly] = []
    known: dict[tuple[str, int], _Version] = {}
    for operation in history.operations:
        for key, version in _versions(operation):
            first = known.setdefault((key, version.seq), version)
            if first.value != version.value:
                what = f"{key} at version {version.seq} has two values"
                places = (history.operations[first.operation], operation)
                found.append(_violation("version-reused", what, *places))
    timelines: dict[str, list[_Version]] = {}
    for key, seq in sorted(known):
        timelines.setdefault(key, []).append(known[key, seq])
    return timelines, found


def _versions(operation: Operation) -> Iterator[tuple[str, _Version]]:
    """The versions that an operation wrote or saw."""
    answer, request = operation.told, operation.request
    if answer is None:
        return
    if isinstance(request, WriteOperation) and answer.committed and answer.seq is not None:
        yield request.key, _Version(answer.seq, frozen(request.value), operation.index)
    if isinstance(request, AppendOperation) and answer.committed and answer.seq is not None:
        for key in request.appends.keys() & answer.seen.keys():
            value = frozen(answer.seen[key].value)
            yield key, _Version(answer.seq, value, operation.index)
        yield from ((key, _Version(answer.seq, None, operation.index)) for key in request.removes)
    for entries in (answer.seen, *answer.ranges.values()):
        for key, seen in entries.items():
            if seen.version:
                yield key, _Version(seen.version, frozen(seen.value), operation.index)


def _real_time(history: History) -> Iterator[Anomaly]:
    """Seqs in the order of real time: of verdicts, and of what strong reads show."""
    returned = sorted(
        (op for op in history.operations if op.told and op.returned_ns is not None),
        key=lambda op: op.returned_ns or 0,
    )
    place = 0
    newest: Operation | None = None
    owners: dict[int, Operation] = {}
    for operation in history.operations:
        while place < len(returned) and (returned[place].returned_ns or 0) < operation.invoked_ns:
            if newest is None or _seq(returned[place]) > _seq(newest):
                newest = returned[place]
            place += 1
        answer = operation.told
        if answer is None or answer.seq is None:
            continue
        if _is_write(operation) and owners.setdefault(answer.seq, operation) is not operation:
            yield _violation("seq-reused", "two verdicts", owners[answer.seq], operation)
        late = newest is not None and _seq(newest) >= answer.seq + (not _is_write(operation))
        if late and newest is not None and operation.is_current:
            yield _violation("seq-against-real-time", "the later has less", newest, operation)


def _snapshots(history: History, timelines: dict[str, list[_Version]]) -> Iterator[Anomaly]:
    """Require that a snapshot shows the last version of every key up to its seq.

    A value without its version may be of a write whose outcome nobody knows.
    """
    perhaps_deleted = {
        key
        for op in history.operations if op.outcome == "unknown" for key in _deleted(op.request)
    }  # fmt: skip
    for operation in history.operations:
        answer = operation.told
        if answer is None or answer.seq is None or not answer.committed:
            continue
        for key, seen in _shown(operation.request, answer, timelines):
            if seen.version is None:
                continue
            versions = timelines.get(key, [])
            at = bisect_right(versions, answer.seq, key=lambda version: version.seq)
            last = versions[at - 1] if at else None
            if (seen.version or 0) > answer.seq:
                what = f"{key} has version {seen.version}, the snapshot is of {answer.seq}"
                yield _violation("snapshot-ahead", what, operation)
            elif seen.value is None and key in perhaps_deleted:
                continue
            elif last is not None and last.value != frozen(seen.value):
                what = f"at seq {answer.seq} {key} is {last.value}, not {frozen(seen.value)}"
                yield _violation(
                    "snapshot-torn", what, history.operations[last.operation], operation
                )


def _deleted(request: Request) -> list[str]:
    """Return the keys that a write removes."""
    if isinstance(request, WriteOperation):
        return [request.key] if request.value is None else []
    return request.removes if isinstance(request, AppendOperation) else []


def _shown(request: Request, answer: Answer, known: Iterable[str]) -> Iterator[tuple[str, Seen]]:
    """Walk over what an answer shows of the state at its seq, absent keys of ranges included."""
    ranges = answer.ranges
    if isinstance(request, ScanOperation):
        ranges = {request.prefix: answer.seen}
    elif isinstance(request, Get | ReadOperation):
        yield from answer.seen.items()
    for prefix, entries in ranges.items():
        yield from entries.items()
        yield from ((key, Seen(None, 0)) for key in known
                    if key.startswith(prefix) and key not in entries)  # fmt: skip


def _asked(request: Request) -> int | None:
    return request.min_version if isinstance(request, Get | ReadOperation | ScanOperation) else None


def _seq(operation: Operation) -> int:
    answer = operation.told
    return 0 if answer is None or answer.seq is None else answer.seq


def _is_write(operation: Operation) -> bool:
    return isinstance(operation.request, WriteOperation | AppendOperation)


def _violation(anomaly: str, message: str, *operations: Operation) -> Anomaly:
    lines = [message, *map(shown, operations)]
    return Anomaly(anomaly, "\n  ".join(lines), tuple(op.index for op in operations))
