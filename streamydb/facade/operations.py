"""Endpoints for those who run a facade: limits, health, metrics, the problem types."""

from __future__ import annotations

from typing import Any

import msgspec

from streamydb.facade.answer import Answer, json_answer
from streamydb.facade.metrics import METRICS_MEDIA_TYPE
from streamydb.facade.problems import ProblemError, type_of
from streamydb.facade.queries import NoQuery, ReadyQuery
from streamydb.facade.request import Request
from streamydb.limits import LIMITS
from streamydb.records.problems import PROBLEMS, Problem


async def get_limits(request: Request, _: NoQuery) -> Answer:
    """Show the limits of the database and of this facade."""
    limits = {**LIMITS, "facade": request.services.settings.limits()}
    return json_answer(msgspec.json.encode(limits))


async def get_live(_request: Request, _: NoQuery) -> Answer:
    """Tell that the facade runs."""
    return json_answer(b'{"status":"live"}')


async def get_ready(request: Request, query: ReadyQuery) -> Answer:
    """Tell what the facade can serve: snapshots, strong reads, writes, changes.

    It answers 200 as long as it can serve what is asked `for`, by default snapshots. A pipeline or
    Kafka that is away is away for every facade, and so no reason to send reads elsewhere. A request
    for another host than those of the facade, as a probe's, is told what is served, and no more.
    """
    health = await request.services.health.report()
    if request.foreign:
        health = health.brief()
    if not health.serves(query.for_):
        why = f": {'; '.join(health.why)}" if health.why else ""
        raise ProblemError(
            "not-ready", f"Not ready for {query.for_}{why}.", retry_after_s=1, health=health
        )
    return json_answer(msgspec.json.encode(health))


async def get_metrics(request: Request, _: NoQuery) -> Answer:
    """Show metrics in Prometheus' text format."""
    headers = {"Content-Type": METRICS_MEDIA_TYPE, "Cache-Control": "no-store"}
    return Answer(request.services.metrics.render(), headers, common=())


async def get_problems(_request: Request, _: NoQuery) -> Answer:
    """Describe all problem types."""
    return json_answer(msgspec.json.encode([_described(p) for p in PROBLEMS.values()]))


async def get_problem(request: Request, _: NoQuery) -> Answer:
    """Describe the problem type that an answer names."""
    problem = PROBLEMS.get(request.name.decode())
    if problem is None:
        raise ProblemError("no-such-endpoint", "There is no such problem type.")
    return json_answer(msgspec.json.encode(_described(problem)))


def _described(problem: Problem) -> dict[str, Any]:
    members = {name: getattr(problem, name) for name in ("slug", "status", "title", "when")}
    return {**members, "type": type_of(problem.slug)}
