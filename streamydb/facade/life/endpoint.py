"""`/v1/explanations`: the life of a transaction."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from streamydb.facade.answer import Answer, json_answer
from streamydb.facade.life.core import seen_by
from streamydb.facade.problems import ProblemError
from streamydb.facade.queries import VerdictQuery
from streamydb.facade.request import Request
from streamydb.facade.transactions import verdict_of
from streamydb.facade.writes import verdict_body
from streamydb.records import Result


async def get_explanation(request: Request, query: VerdictQuery) -> Answer:
    """Tell the life of a transaction: appends, order, plan, values met, checks, writes.

    What the log alone decides is computed; plans and times are shown as they were recorded.
    `unknown` names what is not known any more, and why. The token needs scopes for all keys
    that the transaction names. Values of keys that it may write and not read are hidden.
    """
    services, caller = request.services, request.client
    found = await verdict_of(request, query.record)
    if isinstance(found, Answer):
        return found
    told = await services.writer.told_to(found, caller)
    verdict = msgspec.Raw(verdict_body(_alone(told), caller))
    may_read = None if caller.may_read("") else caller.may_read
    life = await services.explainer.life(_alone(found), request.client_name, may_read)
    shown = msgspec.structs.asdict(seen_by(life, caller.may_read)) | {"verdict": verdict}
    body = msgspec.json.encode(shown)
    if len(body) > services.settings.answer_bytes_max:
        raise ProblemError("answer-too-large", "The explanation is larger than an answer may "
                           "be; `streamydb explain` shows it.")  # fmt: skip
    return json_answer(body)


def _alone(result: Result) -> Result:
    """The verdict of the transaction itself, also if a repetition has told it."""
    return msgspec.structs.replace(result, duplicate=UNSET)
