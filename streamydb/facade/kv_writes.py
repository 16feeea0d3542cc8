"""Writes of one key: `PUT` and `DELETE /v1/kv/{key}`."""

from __future__ import annotations

from typing import Any, NamedTuple

from streamydb.facade.answer import Answer
from streamydb.facade.body import decode_value_body, reading
from streamydb.facade.conditions import KeyConditions, conditions_of, entity_tag
from streamydb.facade.headers import idempotency_key, preference
from streamydb.facade.payloads import conditional_write, new_id
from streamydb.facade.problems import ProblemError
from streamydb.facade.queries import ExpiryQuery, NoQuery
from streamydb.facade.request import Request
from streamydb.facade.transactions import execute
from streamydb.records import Result


async def put_value(request: Request, query: ExpiryQuery) -> Answer:
    """Store a value; If-Match and If-None-Match make it conditional."""
    async with reading(request) as body:
        return await _write(request, _Written(decode_value_body(body), query.ttl_ms))


async def delete_value(request: Request, _: NoQuery) -> Answer:
    """Remove a key; it may be absent, unless If-Match says otherwise."""
    return await _write(request, _Written(None))


class _Written(NamedTuple):
    """A write of one key: its value (None: a delete), and for how long."""

    value: bytes | None
    ttl_ms: int | None = None


async def _write(request: Request, written: _Written) -> Answer:
    key, headers = request.key, request.headers
    generation = request.services.model.generation
    conditions = KeyConditions(key, conditions_of(headers), generation)
    checks = conditions.checks()
    if checks is None:
        detail = "No version can meet If-Match and If-None-Match; nothing was appended."
        raise ProblemError("precondition-failed", detail)
    txn_id, wanted = idempotency_key(headers) or new_id(), preference(headers)
    payload = conditional_write(txn_id, key, written.value, checks, written.ttl_ms)
    steps = _Steps(conditions, written, checks)
    if conditions.in_steps:
        wanted = wanted._replace(respond_async=False)  # the facade takes the steps
    return await execute(request, txn_id, payload, wanted, steps)


class _Steps:
    """The steps of a conditional write (`conditions`), and the answer to the last one."""

    def __init__(
        self, conditions: KeyConditions, written: _Written, checks: list[dict[str, Any]]
    ) -> None:
        self._conditions = conditions
        self._written = written
        self._creates = checks in ([conditions.absent()], [conditions.check(0)])

    def following(self, txn_id: str, payload: bytes, result: Result) -> tuple[str, bytes] | None:
        """Return id and bytes of the step after a verdict, as `transactions.Course` wants."""
        step = self._conditions.following(txn_id, payload, result)
        if step is not None:
            self._creates = self._conditions.met(result) == 0
        return step

    def conclude(self, result: Result) -> tuple[int, dict[str, str]]:
        """Return the status and the headers of the last verdict, or raise its problem."""
        if self._conditions.allow_again(result):
            detail = "Others kept changing the key while its condition was judged; send it again."
            raise ProblemError("aborted", detail, code=result.code, id=result.id)
        _raise_aborted(result)
        if self._written.value is None:
            return 200, {}
        return 201 if self._creates else 200, {
            "ETag": entity_tag(result.seq, self._conditions.generation)
        }


def _raise_aborted(result: Result) -> None:
    if result.status == "committed":
        return
    if result.code == "check-failed":
        version = result.failed[0].version if result.failed else 0
        detail = "The key has another version; nothing was written."
        raise ProblemError(
            "precondition-failed", detail, version=version, id=result.id, seq=result.seq
        )
    if result.code == "constraint-violated" and result.failed:
        failed = result.failed[0]
        detail = f"{failed.violated} is what constraint {failed.constraint} demands."
        raise ProblemError(
            "constraint-violated",
            detail,
            code=result.code,
            constraint=failed.constraint,
            key=failed.key,
            violated=failed.violated,
            id=result.id,
            seq=result.seq,
        )
    raise ProblemError("aborted", "Nothing was written.", code=result.code, id=result.id)
