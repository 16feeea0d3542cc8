"""Endpoints for those who run a facade: limits, health, metrics, the problem types."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec
from litestar import Response, get
from litestar.params import QueryParameter

from streamydb.facade.gate import context_of
from streamydb.facade.health import Kind
from streamydb.facade.metrics import METRICS_MEDIA_TYPE
from streamydb.facade.openapi import answers
from streamydb.facade.problems import ProblemError, type_of
from streamydb.facade.services import AnyRequest, json_response, services_of
from streamydb.limits import LIMITS
from streamydb.records.problems import PROBLEMS, Problem

AsKind: TypeAlias = Annotated[
    Kind,
    QueryParameter(
        name="for", description="200 if it can serve these: reads (of a snapshot), strong (reads "
        "of the present), writes, changes; else 503.",
    ),
]  # fmt: skip

__all__ = ["get_limits", "get_live", "get_metrics", "get_problem", "get_problems", "get_ready"]


@get("/v1/limits", responses=answers("unauthorized"))
async def get_limits(request: AnyRequest) -> Response[bytes]:
    """Show the limits of the database and of this facade."""
    services = services_of(request)
    limits = {**LIMITS, "facade": services.settings.limits()}
    return json_response(msgspec.json.encode(limits))


@get("/health/live", responses=answers())
async def get_live() -> Response[bytes]:
    """Tell that the facade runs."""
    return json_response(b'{"status":"live"}')


@get("/health/ready", responses=answers("not-ready"))
async def get_ready(request: AnyRequest, for_: AsKind = "reads") -> Response[bytes]:
    """Tell what the facade can serve: snapshots, strong reads, writes, changes.

    It answers 200 as long as it can serve what is asked `for`, by default snapshots. A pipeline or
    Kafka that is away is away for every facade, and so no reason to send reads elsewhere. A request
    for another host than those of the facade, as a probe's, is told what is served, and no more.
    """
    health = await services_of(request).health.report()
    if context_of(request.scope).foreign:
        health = health.brief()
    if not health.serves(for_):
        why = f": {'; '.join(health.why)}" if health.why else ""
        raise ProblemError(
            "not-ready", f"Not ready for {for_}{why}.", retry_after_s=1, health=health
        )
    return json_response(msgspec.json.encode(health))


@get("/metrics", responses=answers("unauthorized"))
async def get_metrics(request: AnyRequest) -> Response[bytes]:
    """Show metrics in Prometheus' text format."""
    services = services_of(request)
    return Response(
        services.metrics.render(),
        headers={"Content-Type": METRICS_MEDIA_TYPE, "Cache-Control": "no-store"},
    )


@get("/problems", responses=answers())
async def get_problems() -> Response[bytes]:
    """Describe all problem types."""
    return json_response(msgspec.json.encode([_described(p) for p in PROBLEMS.values()]))


@get("/problems/{slug:str}", responses=answers("no-such-endpoint"))
async def get_problem(request: AnyRequest) -> Response[bytes]:
    """Describe the problem type that an answer names."""
    slug = str(request.path_params["slug"])
    if slug not in PROBLEMS:
        raise ProblemError("no-such-endpoint", "There is no such problem type.")
    return json_response(msgspec.json.encode(_described(PROBLEMS[slug])))


def _described(problem: Problem) -> dict[str, Any]:
    """A problem type in an answer."""
    said = {name: getattr(problem, name) for name in ("slug", "status", "title", "when")}
    return {**said, "type": type_of(problem.slug)}
