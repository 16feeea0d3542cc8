"""Watchers: each change once, in order per key, whole transactions, nothing missing.

The changes of one key must form a chain: what one leaves is what the next finds. A gap, a
repetition or an exchange breaks the chain, whatever the numbers say.
"""

from __future__ import annotations

from collections.abc import Iterator

from histories.records import (
    AppendOperation,
    Delivery,
    History,
    Operation,
    WatchOperation,
    WriteOperation,
    frozen,
)
from histories.violations import Anomaly, shown

__all__ = ["check_watches"]


def check_watches(history: History) -> list[Anomaly]:
    """Find changes that watchers got twice, in another order, torn, or not at all."""
    found: list[Anomaly] = []
    for watch in history.watches:
        deliveries = history.deliveries.get(watch.watcher, [])
        found += _order(watch, deliveries)
        found += _chains(watch, deliveries)
        found += _whole(history, watch, deliveries)
        found += _complete(history, watch, deliveries)
    return found


def _order(watch: WatchOperation, deliveries: list[Delivery]) -> Iterator[Anomaly]:
    """Ids only grow."""
    last = watch.since
    for delivery in deliveries:
        if delivery.seq <= last:
            what = f"{_name(watch)}: id {delivery.seq} after {last}"
            yield Anomaly("watch-order", what)
        last = max(last, delivery.seq)


def _chains(watch: WatchOperation, deliveries: list[Delivery]) -> Iterator[Anomaly]:
    """Each change of a key finds what the one before left."""
    left: dict[str, str | None] = {} if watch.since else dict.fromkeys(_keys(deliveries))
    for delivery in deliveries:
        for change in delivery.changes:
            before, after = frozen(change.before), frozen(change.after)
            if change.key in left and left[change.key] != before:
                what = f"{change.key} was left at {left[change.key]}, and found at {before}"
                yield Anomaly("watch-gap", f"{_name(watch)}, id {delivery.seq}: {what}")
            left[change.key] = after


def _whole(
    history: History, watch: WatchOperation, deliveries: list[Delivery]
) -> Iterator[Anomaly]:
    """Require that one transaction's writes come under one id, and none that was not executed."""
    places: dict[tuple[str, str], int] = {}
    for delivery in deliveries:
        for change in delivery.changes:
            for written in _elements(change.before, change.after):
                places[change.key, written] = delivery.seq
    for operation in history.operations:
        ids = {places[one] for one in _written(operation, watch.prefix) if one in places}
        if len(ids) > 1:
            what = f"{_name(watch)}: one transaction under the ids {sorted(ids)}"
            yield _violation("watch-torn", what, operation)
        if ids and operation.refused:
            what = f"{_name(watch)}: changes of what was not executed"
            yield _violation("watch-phantom", what, operation)


def _complete(
    history: History, watch: WatchOperation, deliveries: list[Delivery]
) -> Iterator[Anomaly]:
    """All that committed up to the last id is there, as far as the watch goes back."""
    if not deliveries:
        return
    last = max(delivery.seq for delivery in deliveries)
    seen = {
        (change.key, written)
        for delivery in deliveries
        for change in delivery.changes
        for written in _elements(change.before, change.after)
    }
    for operation in history.operations:
        answer = operation.told
        if answer is None or not answer.committed or answer.seq is None:
            continue
        missing = [one for one in _written(operation, watch.prefix) if one not in seen]
        if missing and watch.since < answer.seq <= last:
            what = f"{_name(watch)} has not got {missing[0][1]} of {missing[0][0]}"
            yield _violation("watch-lost", what, operation)


def _written(operation: Operation, prefix: str) -> list[tuple[str, str]]:
    """Return the recognisable writes of an operation: values and elements."""
    request = operation.request
    if isinstance(request, WriteOperation) and request.value is not None:
        pairs = [(request.key, str(frozen(request.value)))]
    elif isinstance(request, AppendOperation):
        pairs = [(key, str(frozen(e))) for key, new in request.appends.items() for e in new]
    else:
        pairs = []
    return [(key, written) for key, written in pairs if key.startswith(prefix)]


def _elements(before: object, after: object) -> list[str]:
    """Return the writes of a change: the new elements of a list, or the value."""
    if isinstance(after, list):
        kept = len(before) if isinstance(before, list) else 0
        return [str(frozen(element)) for element in after[kept:]]
    return [] if after is None else [str(frozen(after))]


def _keys(deliveries: list[Delivery]) -> set[str]:
    return {change.key for delivery in deliveries for change in delivery.changes}


def _name(watch: WatchOperation) -> str:
    return f"watcher {watch.watcher} of {watch.prefix}* since {watch.since}"


def _violation(anomaly: str, what: str, operation: Operation) -> Anomaly:
    return Anomaly(anomaly, f"{what}\n  {shown(operation)}", (operation.index,))
