"""`/v1/explanations`: the life of a transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec
from litestar import Response, get
from litestar.handlers import HTTPRouteHandler
from msgspec import UNSET

from streamydb.errors import StreamyError
from streamydb.facade import parameters as q
from streamydb.facade.about import About
from streamydb.facade.bounds import Limiter
from streamydb.facade.gate import context_of
from streamydb.facade.life.core import Life, MetValue, explain, seen_by
from streamydb.facade.life.evidence import Evidence
from streamydb.facade.openapi import answers
from streamydb.facade.ports import ReadModel
from streamydb.facade.problems import ProblemError
from streamydb.facade.reads import in_thread
from streamydb.facade.services import (
    AnyRequest,
    client_of,
    json_response,
    services_of,
)
from streamydb.facade.transactions import verdict_of
from streamydb.facade.writes import verdict_body
from streamydb.records import Result
from streamydb.records.expiry import ending

__all__ = ["explanation_handler"]

_PROBLEMS: Final = (
    "invalid-parameter", "unauthorized", "forbidden", "transaction-unknown", "too-many-requests",
    "overloaded", "log-unavailable", "not-ready", "answer-too-large",
)  # fmt: skip
_NO_KAFKA: Final = dict.fromkeys(
    ("appends", "transaction", "plan", "writes", "resolved", "digests"),
    "there is no Kafka behind this facade",
)


def explanation_handler(
    about: About, searches_max: int, client_searches_max: int
) -> HTTPRouteHandler:
    """Return the handler of `GET /v1/explanations/{id}`; so many searches run at once, in all and
    for one client.
    """
    searches = Limiter("searches for explanations", searches_max, client_searches_max)
    threads = ThreadPoolExecutor(searches_max, "streamydb-explanations")

    @get("/v1/explanations/{id:path}", responses=answers(*_PROBLEMS))
    async def get_explanation(request: AnyRequest, record: q.AsRecord = None) -> Response[bytes]:
        """Tell the life of a transaction: appends, order, plan, values met, checks, writes.

        What the log alone decides is computed; plans and times are shown as they were recorded.
        `unknown` names what is not known any more, and why. The token needs scopes for all keys
        that the transaction names. Values of keys that it may write and not read are hidden.
        """
        services, caller = services_of(request), client_of(request)
        found = await verdict_of(request, record)
        if isinstance(found, Response):
            return found
        told = await services.writer.told_to(found, caller)
        verdict = msgspec.Raw(verdict_body(_alone(told), caller))
        may_read = None if caller.may_read("") else caller.may_read
        with searches.enter(context_of(request.scope).client_name):
            life = await in_thread(
                _life, about, services.model, _alone(found), may_read, of=threads
            )
        shown = msgspec.structs.asdict(seen_by(life, caller.may_read)) | {"verdict": verdict}
        body = msgspec.json.encode(shown)
        if len(body) > services.settings.answer_bytes_max:
            raise ProblemError("answer-too-large", "The explanation is larger than an answer may "
                               "be; `streamydb explain` shows it.")  # fmt: skip
        return json_response(body)

    return get_explanation


def _alone(result: Result) -> Result:
    """The verdict of the transaction itself, also if a repetition has told it."""
    return msgspec.structs.replace(result, duplicate=UNSET)


def _life(
    about: About, model: ReadModel, result: Result, may_read: Callable[[str], bool] | None
) -> Life:
    evidence = Evidence(missing=_NO_KAFKA) if about.evidence is None else about.evidence(result)

    def look(keys: Sequence[str]) -> Mapping[str, MetValue] | None:
        return _state_before(model, result.seq, keys)

    return explain(result, evidence, look, may_read)


def _state_before(
    model: ReadModel, seq: int, keys: Sequence[str]
) -> Mapping[str, MetValue] | None:
    """Show keys right before a transaction; None if that snapshot is not kept."""
    if seq == 1:
        return {}
    if not model.oldest() <= seq - 1 <= model.latest().seq:
        return None
    try:
        with model.snapshot(seq - 1) as snapshot:
            found = zip(keys, snapshot.get_many(keys), strict=True)
            return {
                key: MetValue(ending(entry.value, entry.expires_ms), entry.version)
                for key, entry in found if entry is not None
            }  # fmt: skip
    except StreamyError:  # it was collected meanwhile
        return None
