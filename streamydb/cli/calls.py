"""Running transactions from the command line: append them, and await their results."""

from __future__ import annotations

import time
import uuid
from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from streamydb.cli.common import fail, plain, say
from streamydb.errors import ABORTED_CODES, REJECTED_CODES
from streamydb.limits import LOCK_ATTEMPTS_MAX
from streamydb.records.formats import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from streamydb.cli.target import Target
    from streamydb.kafka.producer import Appended, Producer
    from streamydb.kafka.results import ResultReader
    from streamydb.records import Result

WINDOW = 20_000  # how many transactions may be under way at once
_PATIENCE_S_MIN = 5.0
_PATIENCE_S_MAX = 30.0  # how long Kafka has to answer at all, whatever time a result may take
_CLOCK_SKEW_S = 30  # how far the brokers' clocks may be ahead of this machine's


class _IdFields(msgspec.Struct):
    id: str


def with_id(transaction: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": uuid.uuid4().hex, **transaction}


def deadline_ms(timeout_s: float) -> int:
    """The deadline of a transaction whose result is awaited for so long from now on."""
    from streamydb.limits import DEADLINE_AHEAD_MS_MAX

    ahead_ms = int(1_000 * (timeout_s + _CLOCK_SKEW_S))
    return time.time_ns() // 1_000_000 + min(ahead_ms, DEADLINE_AHEAD_MS_MAX // 2)


def call(
    target: Target,
    transaction: Mapping[str, Any],
    timeout_s: float,
    look: Callable[[], object] = lambda: None,
) -> Result:
    """Append one transaction and wait for its result. ``look``: see `ResultReader`. Raises
    StreamyError: it was refused, not appended, or its result did not come in time; Failure: nobody
    listens at Kafka's address.
    """
    dated = {"deadline_ms": deadline_ms(timeout_s), **with_id(transaction)}
    payload = msgspec.json.encode(dated)  # before Kafka is asked for anything
    return next(iter(call_many(target, [payload], timeout_s, look=look)))


def read(target: Target, keys: Sequence[str], timeout_s: float) -> dict[str, bytes]:
    """Values of keys by a transaction, as JSON; null: absent.
    Raises StreamyError: as `call`; Failure: as `call`; or the transaction did not commit.
    """
    result = call(target, {"reads": keys}, timeout_s)
    if result.status != "committed":
        fail(f"{', '.join(keys)} could not be read: {result.status} {result.code}")
    return {key: bytes(value) for key, value in result.reads.items()}


def commit(
    target: Target, transaction: Mapping[str, Any], timeout_s: float, otherwise: str
) -> Result:
    """Append a transaction and wait until it is committed; ``otherwise``: the failure if it is not.
    Raises StreamyError: as `call`; Failure: as `call`; or the transaction did not commit.
    """
    result = call(target, transaction, timeout_s)
    if result.status != "committed":
        why = plain(result.reason or meaning(str(result.code)))
        fail(f"{otherwise}: {result.status} {result.code}: {why}")
    return result


def meaning(code: str) -> str:
    """A reason code in a sentence; that of a later release, which none is known of, as it is."""
    return REJECTED_CODES.get(code) or ABORTED_CODES.get(code) or f"{code}: see its release's codes"


def call_many(
    target: Target,
    transactions: Iterable[bytes | Mapping[str, Any]],
    timeout_s: float,
    appended: Callable[[], None] | None = None,
    look: Callable[[], object] = lambda: None,
) -> Iterator[Result]:
    """Append transactions and yield their results in the order of appending. One that lacks the
    locks of a constraint is appended again with them (`records.attempts`), and the result of that
    one is yielded. Raises StreamyError: as `call`; Failure: nobody listens at Kafka's address.
    """
    from streamydb.kafka.producer import Producer
    from streamydb.kafka.results import ResultReader

    settings = target.settings
    target.must_listen()
    patience_s = min(max(timeout_s, _PATIENCE_S_MIN), _PATIENCE_S_MAX)
    with (
        ResultReader(settings, patience_s=patience_s, look=look) as results,
        Producer(settings) as producer,
    ):
        sent: deque[bytes] = deque()
        waiting: deque[tuple[Appended, bytes]] = deque()
        for where in producer.append_many(_noted(transactions, sent)):
            waiting.append((where, sent.popleft()))
            if appended is not None:
                appended()
            if len(waiting) >= WINDOW:
                yield _result(producer, results, *waiting.popleft(), timeout_s)
        while waiting:
            yield _result(producer, results, *waiting.popleft(), timeout_s)


def _noted(
    transactions: Iterable[bytes | Mapping[str, Any]], sent: deque[bytes]
) -> Iterator[bytes]:
    for each in transactions:
        payload = each if isinstance(each, bytes) else msgspec.json.encode(each)
        sent.append(payload)
        yield payload


def _result(
    producer: Producer, results: ResultReader, where: Appended, payload: bytes, timeout_s: float
) -> Result:
    """The result of a transaction, or of its last attempt with the locks that it needs."""
    from streamydb.records.attempts import relocked

    result = _awaited(results, where, payload, timeout_s)
    for _ in range(LOCK_ATTEMPTS_MAX - 1):
        again = relocked(result.id or "", payload, result)
        if again is None:
            break
        payload = again[1]
        where = producer.append(payload)
        result = _awaited(results, where, payload, timeout_s)
    return result


def _awaited(results: ResultReader, where: Appended, payload: bytes, timeout_s: float) -> Result:
    """The result of a record.
    Raises Failure: none came in time; the message has the transaction's id, to ask for it later.
    """
    from streamydb.kafka.results import ResultTimeoutError

    try:
        return results.wait_at(where.partition, where.offset, timeout_s)
    except KeyboardInterrupt:
        txn_id = _id_in(payload)
        say(f"Transaction {txn_id} is in the log: `streamydb explain` tells its verdict later.")
        raise
    except ResultTimeoutError as error:
        txn_id = _id_in(payload)
        fail(f"transaction {txn_id}: {error} `streamydb explain` tells its verdict once it has one")


def _id_in(payload: bytes) -> str:
    """The id of a transaction, or its beginning if that cannot be told."""
    try:
        return msgspec.json.decode(payload, type=_IdFields).id
    except UNREADABLE:
        return repr(payload[:40].decode("utf-8", "backslashreplace"))
