"""Running transactions from the command line: append them, and await their results."""

from __future__ import annotations

import time
import uuid
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from streamydb.cli.target import Target
    from streamydb.records import Result

WINDOW = 20_000
"""How many transactions may be under way at once."""

_CLOCK_SKEW_S = 30
"""How far the brokers' clocks may be ahead of this machine's."""


def with_id(transaction: Mapping[str, Any]) -> dict[str, Any]:
    """The transaction with an id: its own, else a new one."""
    return {"id": uuid.uuid4().hex, **transaction}


def deadline_ms(timeout_s: float) -> int:
    """The deadline of a transaction whose result is awaited for so long from now on."""
    from streamydb.limits import DEADLINE_AHEAD_MS_MAX

    ahead_ms = int(1_000 * (timeout_s + _CLOCK_SKEW_S))
    return time.time_ns() // 1_000_000 + min(ahead_ms, DEADLINE_AHEAD_MS_MAX // 2)


def call(target: Target, transaction: Mapping[str, Any], timeout_s: float) -> Result:
    """Append one transaction and wait for its result.

    Raises:
        StreamyError: it was refused, not appended, or its result did not come in time.
        Failure: nobody listens at Kafka's address.
    """
    dated = {"deadline_ms": deadline_ms(timeout_s), **with_id(transaction)}
    return next(iter(call_many(target, [dated], timeout_s)))


def call_many(
    target: Target,
    transactions: Iterable[bytes | Mapping[str, Any]],
    timeout_s: float,
    appended: Callable[[], None] | None = None,
) -> Iterator[Result]:
    """Append transactions and yield their results in the order of appending.

    Raises:
        StreamyError: as `call`.
        Failure: nobody listens at Kafka's address.
    """
    from streamydb.kafka.producer import Producer
    from streamydb.kafka.results import ResultReader

    settings = target.settings
    target.must_listen()
    with (
        ResultReader(settings) as results,
        Producer(settings, validate=False) as producer,
    ):
        waiting: deque[Any] = deque()
        for where in producer.append_many(transactions):
            waiting.append(where)
            if appended is not None:
                appended()
            if len(waiting) >= WINDOW:
                oldest = waiting.popleft()
                yield results.wait_at(oldest.partition, oldest.offset, timeout_s)
        while waiting:
            oldest = waiting.popleft()
            yield results.wait_at(oldest.partition, oldest.offset, timeout_s)
