"""The OpenAPI document: what every endpoint answers, and the table of problems in words."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

from litestar import MediaType, Request
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import OpenAPIConfig, ResponseSpec
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme

from streamydb import __version__
from streamydb.facade.openapi_details import completed
from streamydb.facade.problems import PROBLEM_MEDIA_TYPE, ProblemDetails, type_of
from streamydb.records.problems import PROBLEMS, Problem

__all__ = ["ANYWHERE", "answers", "openapi_config"]

ANYWHERE: Final = (
    "invalid-parameter", "cross-origin", "no-such-endpoint", "method-not-allowed", "uri-too-long",
    "misdirected", "headers-too-large", "internal", "overloaded", "other-generation",
)  # fmt: skip
"""Problems that a request to any endpoint may meet."""

_INTRODUCTION: Final = """\
A strictly serializable key-value database over HTTP. Values are JSON. A key is the rest of the path
after `/v1/kv/`, percent-encoded; it may hold slashes. The version of a value is the `seq` of the
transaction that wrote it: the number in its ETag, and what `at`, `min_version` and `since` take.
A database that was restored or forked is of another *generation*, which answers tell in the header
`Streamydb-Generation`. Send it along with seqs: what is of another one is refused.

A failed request is answered with `application/problem+json` (RFC 9457). The types:

| type | status | when |
|---|---|---|
"""


class _Document(JsonRenderPlugin):
    """Serves the completed document."""

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        """Return its JSON."""
        return super().render(request, completed(openapi_schema))


def answers(*slugs: str) -> dict[int, ResponseSpec]:
    """Return the failures of an endpoint, by status, for its documentation."""
    by_status: dict[int, list[Problem]] = defaultdict(list)
    for slug in dict.fromkeys((*slugs, *ANYWHERE)):
        by_status[PROBLEMS[slug].status].append(PROBLEMS[slug])
    return {
        status: ResponseSpec(
            data_container=ProblemDetails,
            generate_examples=False,
            media_type=PROBLEM_MEDIA_TYPE,
            description="\n".join(f"- `{type_of(p.slug)}`: {p.when}" for p in problems),
        )
        for status, problems in sorted(by_status.items())
    }


def _operation_id(handler: HTTPRouteHandler, *_: object) -> str:
    """Name an operation after its handler: what a generated client calls its method."""
    first, *others = handler.handler_name.split("_")
    return first + "".join(map(str.title, others))


def openapi_config() -> OpenAPIConfig:
    """Return how the document is made; it is served at `/schema`."""
    rows = [f"| `{type_of(p.slug)}` | {p.status} | {p.when} |\n" for p in PROBLEMS.values()]
    bearer = SecurityScheme(type="http", scheme="bearer", description="Off loopback, a token.")
    return OpenAPIConfig(
        title="streamy-db",
        version=__version__,
        description=_INTRODUCTION + "".join(rows),
        path="/schema",
        render_plugins=[_Document(media_type=MediaType.JSON)],
        use_handler_docstrings=True,
        operation_id_creator=_operation_id,
        components=Components(security_schemes={"bearer": bearer}),
        security=[{"bearer": []}, {}],
    )
