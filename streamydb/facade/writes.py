"""A transaction's way through the facade: bounds, append, verdict, or "ask later".

Once a transaction may be in the log, nothing says that it failed: the answer is its verdict, or
that the verdict is not known yet, with the place where to ask.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from typing import Final, NamedTuple
from urllib.parse import quote

import msgspec
from msgspec import UNSET

from streamydb.errors import UNTIMELY
from streamydb.facade.auth import ANYBODY, Caller
from streamydb.facade.bounds import Limiter
from streamydb.facade.headers import Preference
from streamydb.facade.metrics import FacadeMetrics
from streamydb.facade.payloads import may_hear
from streamydb.facade.ports import LogPosition, NoResult, ServedModel, TransactionLog
from streamydb.facade.problems import ProblemError, log_failure_text
from streamydb.facade.settings import FacadeSettings
from streamydb.facade.traces import OFF, Traces
from streamydb.facade.waiting import WORK_LEFT_S, Shutdown, SingleFlight
from streamydb.kafka.errors import KafkaUnavailableError
from streamydb.kafka.producer import AppendUnknownError
from streamydb.records import (
    UNIQUE_PREFIX,
    Failed,
    Result,
    Source,
    Transaction,
    decode,
    encode_result,
)
from streamydb.records.result import NULL

_RETRY_AFTER_S: Final = 1


class PendingWrite(NamedTuple):
    """A transaction that may be in the log and whose verdict is not known yet."""

    txn_id: str
    position: LogPosition | None

    def headers(self) -> dict[str, str]:
        return {
            "Location": location(self.txn_id, self.position),
            "Retry-After": str(_RETRY_AFTER_S),
        }

    def body(self) -> bytes:
        return msgspec.json.encode({"id": self.txn_id, "status": "unknown"})

    def problem(self) -> ProblemError:
        """Return the problem of a client that wanted the verdict at once."""
        return ProblemError(
            "verdict-unknown",
            "The transaction may be in the log, and its verdict is not known yet; ask Location "
            "later, or send the same bytes with the same id again.",
            headers=self.headers(),
            id=self.txn_id,
        )


class _SentRecord(NamedTuple):
    """The place of a record, and the client that has sent it."""

    position: LogPosition
    client: Caller


def location(txn_id: str, position: LogPosition | None) -> str:
    path = "/v1/transactions/" + quote(txn_id, safe="")
    return path if position is None else f"{path}?record={position.partition}:{position.offset}"


def verdict_body(result: Result, client: Caller) -> bytes:
    """Return the JSON of a verdict; values met by failed updates only for who may read them.
    Raises ProblemError: forbidden, if the client may not read a key in `reads`, or a range.
    """
    for key in result.reads:
        client.must_read(key)
    for read in result.ranges or ():
        client.must_read(read.range.shared)
    if not result.failed:
        return encode_result(result)
    visible = [_seen_by(failed, client) for failed in result.failed]
    verdict = msgspec.structs.replace(result, failed=visible)
    pairs = zip(result.failed, visible, strict=True)
    if any(failed.key != hidden.key for failed, hidden in pairs):
        verdict.reason = UNSET  # it has such a key, too
    return encode_result(verdict)


def _seen_by(failed: Failed, client: Caller) -> Failed:
    """A failed check as a client may see it; a copy, as others wait for the same verdict."""
    if client.may_read(failed.key):
        return failed
    if failed.check == "range":
        return msgspec.structs.replace(failed, count=UNSET)
    if failed.check == "lock":  # an index key has the hash of a value that was there
        is_index_key = failed.key.startswith(UNIQUE_PREFIX)
        return msgspec.structs.replace(failed, key=UNIQUE_PREFIX) if is_index_key else failed
    hidden = msgspec.structs.replace(failed, value=NULL, truncated=True)
    if failed.violated is not UNSET:
        hidden.violated = failed.violated.partition(" ")[0]
    return hidden


class TransactionWriter:
    """Appends transactions and waits for their verdicts."""

    def __init__(
        self,
        model: ServedModel,
        log: TransactionLog,
        settings: FacadeSettings,
        metrics: FacadeMetrics,
        traces: Traces = OFF,
        ending: Shutdown | None = None,
    ) -> None:
        self._ending = Shutdown() if ending is None else ending
        self._traces = traces
        self._model = model
        self._log = log
        self._settings = settings
        self._metrics = metrics
        self._pending: OrderedDict[str, _SentRecord] = OrderedDict()
        self._ends = SingleFlight(log.ends)
        self._looking = asyncio.Lock()
        self._searches = Limiter(
            "searches of old results", settings.searches_max, settings.client_searches_max
        )
        self.in_flight = Limiter(
            "transactions", settings.in_flight_max, settings.client_in_flight_max
        )

    def deadline_ms(self) -> int:
        """Return the deadline of a write that has none, if it is sent now."""
        return self._log.time_ms() + int(1_000 * self._settings.deadline_s)

    async def append(self, txn_id: str, payload: bytes, client: Caller = ANYBODY) -> PendingWrite:
        """Append a transaction that a client has sent.
        Raises ProblemError: log-unavailable (nothing was appended), verdict-unknown.
        """
        try:
            with self._traces.span("append"):
                async with self._ending.timeout(self._settings.append_timeout_s, math.inf):
                    position = await self._log.append(txn_id, payload, self._traces.headers())
        except KafkaUnavailableError as error:
            raise ProblemError(
                "log-unavailable",
                f"{log_failure_text(error)}; nothing was appended. Try again later.",
                retry_after_s=_RETRY_AFTER_S,
            ) from None
        except (AppendUnknownError, TimeoutError):
            self._metrics.verdict("unknown")
            raise PendingWrite(txn_id, None).problem() from None
        self._pending.setdefault(txn_id, _SentRecord(position, client))
        if len(self._pending) > self._settings.pending_max:
            self._pending.popitem(last=False)
        return PendingWrite(txn_id, position)

    async def verdict(self, pending: PendingWrite, preference: Preference) -> Result | None:
        """Wait for the verdict of an appended transaction; None if the client shall ask later.
        Raises ProblemError: verdict-unknown, if the client has not said how long it waits.
        """
        at_once = preference.respond_async and math.isinf(preference.wait_s)
        if at_once or pending.position is None:
            self._metrics.verdict("pending")
            return None
        wait_s = min(preference.wait_s, self._settings.verdict_timeout_s)
        try:
            with self._traces.span("wait for verdict"):
                async with self._ending.timeout(wait_s, WORK_LEFT_S):
                    result = await self._log.result(pending.txn_id, pending.position)
        except TimeoutError:
            self._metrics.verdict("unknown")
            if math.isfinite(preference.wait_s):
                return None
            raise pending.problem() from None
        self._metrics.verdict(result.status)
        return result

    async def ask(
        self, txn_id: str, position: LogPosition | None, preference: Preference, asker: str = ""
    ) -> Result | PendingWrite:
        """Find the verdict of a transaction that was sent before, at a position or anywhere (None).

        The client is counted by the name `asker`.
        Raises ProblemError: transaction-unknown, too-many-requests, overloaded.
        """
        result = self._log.recent(txn_id, position)
        sent = self._pending.get(txn_id)
        known = position or (sent and sent.position)
        if result is None and known is not None:
            result = self._log.recent(txn_id, known)
            if result is None and self._is_ahead(known):
                if position is not None:
                    await self._must_be_there(position)
                result = await self._await_briefly(txn_id, known, preference)
                if result is None:
                    return PendingWrite(txn_id, known)
        if result is None:
            result = await self._search(txn_id, known, asker)
        if position is None and result.code in UNTIMELY:
            # An earlier copy may have been executed.
            result = await self._search(txn_id, None, asker)
        if result.id != txn_id:
            raise ProblemError(
                "transaction-unknown", "The record at this place is of another transaction."
            )
        return result

    async def _search(self, txn_id: str, position: LogPosition | None, asker: str) -> Result:
        with self._searches.enter(asker):
            outcome = await self._log.search(txn_id, position)
        if isinstance(outcome, NoResult):
            raise _missing(outcome)
        return outcome

    async def _await_briefly(
        self, txn_id: str, position: LogPosition, preference: Preference
    ) -> Result | None:
        """Wait for a verdict as long as the client said, which by default is not at all."""
        if math.isinf(preference.wait_s):
            return None
        try:
            wait_s = min(preference.wait_s, self._settings.verdict_timeout_s)
            async with self._ending.timeout(wait_s, WORK_LEFT_S):
                return await self._log.result(txn_id, position)
        except TimeoutError:
            return None

    def knows(self, txn_id: str) -> bool:
        """Return True if a transaction with this id was sent lately, here or elsewhere."""
        return txn_id in self._pending or self._log.recent(txn_id, None) is not None

    async def told_to(self, result: Result, client: Caller) -> Result:
        """Return a verdict to a client that asks for it by an id, if it may know that. A verdict
        tells of all keys that its transaction names. Who sent it here has shown that it may know
        them; else the record in the log tells the names. Raises ProblemError: forbidden;
        KafkaUnavailableError: Kafka does not answer.
        """
        if (
            client.may_read("")
            or self._has_sent(client, result)
            or (await self._is_heard(result.source, client))
        ):
            return result
        raise ProblemError(
            "forbidden",
            "The token may not read all that this transaction names, or the log does not have its "
            "record any more, which would tell.",
        )

    def _has_sent(self, client: Caller, result: Result) -> bool:
        sent = None if result.id is None else self._pending.get(result.id)
        place = result.source.partition, result.source.offset
        return sent is not None and sent.client is client and sent.position == place

    async def _is_heard(self, source: Source, client: Caller) -> bool:
        """Return True if the log has a record whose verdict a client may know."""
        async with self._looking:  # one at a time: each may hold a thread that waits for Kafka
            records = await self._log.next_records({source.partition: source.offset})
        record = records.get(source.partition)
        if record is None or not record.found or record.offset != source.offset:
            return False
        txn = decode(record.value)
        return not isinstance(txn, Transaction) or may_hear(txn, client)

    async def _must_be_there(self, position: LogPosition) -> None:
        """Refuse a place behind the end of the log. Raises ProblemError: transaction-unknown."""
        try:
            ends = await self._ends.look()
        except KafkaUnavailableError:
            return
        if position.offset >= ends.get(position.partition, 0):
            raise ProblemError("transaction-unknown", "The log has no record at this place.")

    def _is_ahead(self, position: LogPosition) -> bool:
        return self._model.latest().offsets.get(position.partition, 0) <= position.offset


def _missing(search: NoResult) -> ProblemError:
    if search.complete:
        return ProblemError(
            "transaction-unknown",
            "No result that Kafka keeps has this id: the transaction was not appended, is not "
            "decided yet, or its result was deleted since.",
        )
    if search.since_ms is None:
        return ProblemError(
            "transaction-unknown",
            "There are too many results to look at all of them, and not even the newest could be: "
            "the transaction may have been executed. Ask again, or with ?record=partition:offset.",
        )
    return ProblemError(
        "transaction-unknown",
        "There are too many results to look at all of them, and the newest do not have this id: "
        "the transaction was not appended, is not decided yet, or is older than "
        "searched_since_ms. To find an old one, ask with ?record=partition:offset.",
        searched_since_ms=search.since_ms,
    )
