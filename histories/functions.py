"""Requests as the Python client takes them: as a function under `run`, as a transaction."""

from __future__ import annotations

from msgspec import UNSET

from histories.records import Answer, AppendOperation, Seen, WriteOperation
from streamydb.client.awaiting.views import AsyncAtomic, AsyncView
from streamydb.client.transactions import Committed
from streamydb.records.ranges import Range

__all__ = ["answer_of", "built", "called", "writes"]


async def called(view: AsyncView, request: WriteOperation | AppendOperation) -> Answer:
    """Return what a function has done and seen: all of it, if it commits."""
    if isinstance(request, WriteOperation):
        if request.expected is not None:
            found = await view.get(request.key)
            if found != request.expected.value:
                return Answer(committed=False)
        if request.value is None:
            view.delete(request.key)
        else:
            view.put(request.key, request.value)
        return Answer()
    ranges = await _scanned(view, request)
    if ranges is None:
        return Answer(committed=False)
    for key in request.removes:
        if await view.get(key) is None:
            return Answer(committed=False)
        view.delete(key)
    for key in request.touches:
        value = await view.get(key)
        if value is None:
            return Answer(committed=False)
        view.put(key, value, ttl_ms=request.ttls[key])
    keys = sorted({*request.appends, *request.reads})
    for key, value in (await view.read(keys)).items():
        if key in request.appends:
            new = [*(value or []), *request.appends[key]]
            view.put(key, new, ttl_ms=request.ttls.get(key, UNSET))
    after = await view.read(request.reads)
    return Answer(seen={key: Seen(value) for key, value in after.items()}, ranges=ranges)


async def _scanned(view: AsyncView, request: AppendOperation) -> dict[str, dict[str, Seen]] | None:
    """Return the ranges that a function reads, with its writes; None: they are not as it wants."""
    found = {}
    for prefix in sorted({*request.scans, *request.unchanged, *request.most}):
        seen = {entry.key: Seen(entry.value) async for entry in view.scan(prefix)}
        known = request.unchanged.get(prefix)
        wanted = seen if known is None else {k: Seen(e.value) for k, e in known.seen.items()}
        if seen != wanted or len(seen) > request.most.get(prefix, len(seen)):
            return None
        found[prefix] = seen
    for prefix, seen in found.items():
        for key in request.appends:
            if key.startswith(prefix):
                old = seen.get(key, Seen([])).value
                seen[key] = Seen([*old, *request.appends[key]])
        for key in request.removes:
            seen.pop(key, None)
    return {prefix: found[prefix] for prefix in request.scans}


def writes(request: WriteOperation | AppendOperation) -> bool:
    """Return True if a request writes."""
    if isinstance(request, WriteOperation):
        return True
    return bool(request.appends or request.removes or request.touches)


def built(txn: AsyncAtomic, request: WriteOperation | AppendOperation) -> AsyncAtomic:
    """Put the transaction of a request together."""
    if isinstance(request, AppendOperation):
        for key, new in request.appends.items():
            for element in new:
                txn.append(key, element, ttl_ms=request.ttls.get(key, UNSET))
        for key in request.removes:
            txn.check(key, exists=True).delete(key)
        for key in request.touches:
            txn.check(key, exists=True).touch(key, ttl_ms=request.ttls[key])
        for prefix, known in request.unchanged.items():
            txn.check(Range(prefix=prefix), count=len(known.seen), version_le=known.seq)
        for prefix, most in request.most.items():
            txn.check(Range(prefix=prefix), count_le=most)
        return txn.read(*request.reads, *(Range(prefix=prefix) for prefix in request.scans))
    if request.expected is not None:
        txn.check(request.key, version=request.expected.version or 0)
    if request.value is None:
        return txn.delete(request.key)
    return txn.put(request.key, request.value)


def answer_of(made: Committed) -> Answer:
    """Return what a verdict says."""
    ranges = {
        named.prefix or "": {each.key: Seen(each.value, each.version) for each in entries}
        for named, entries in made.ranges.items()
    }
    seen = {key: Seen(value) for key, value in made.reads.items()}
    return Answer(seq=made.seq, ts_ms=made.ts_ms, seen=seen, ranges=ranges)
