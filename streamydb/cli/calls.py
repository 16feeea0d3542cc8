"""Running transactions from the command line: append them, and await their results."""

from __future__ import annotations

import uuid
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from streamydb.cli.target import Target
    from streamydb.records import Result

WINDOW = 20_000
"""How many transactions may be under way at once."""


def with_id(transaction: Mapping[str, Any]) -> dict[str, Any]:
    """The transaction with an id: its own, else a new one."""
    return {"id": uuid.uuid4().hex, **transaction}


def call(target: Target, transaction: Mapping[str, Any], timeout_s: float) -> Result:
    """Append one transaction and wait for its result.

    Raises:
        StreamyError: it was refused, not appended, or its result did not come in time.
        Failure: nobody listens at Kafka's address.
    """
    return next(iter(call_many(target, [with_id(transaction)], timeout_s)))


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
    from streamydb.sequencer.kafka import Producer, ResultReader

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
                yield _typed(results.wait_at(oldest.partition, oldest.offset, timeout_s))
        while waiting:
            oldest = waiting.popleft()
            yield _typed(results.wait_at(oldest.partition, oldest.offset, timeout_s))


def _typed(result: Mapping[str, Any]) -> Result:
    """The result as a struct."""
    import msgspec

    from streamydb.records import decode_result

    return decode_result(msgspec.json.encode(result))
