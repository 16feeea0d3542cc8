"""The answers to requests that fail (RFC 9457), made from the table of `records.problems`.

No detail carries a key, a value or a token: what a client sent is named, never repeated. The
exceptions are `error` of a query, which DuckDB writes, and the field of a refused transaction with
what it held; they go to the asker alone, never to a log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from streamydb.errors import StreamyError
from streamydb.kafka.errors import KafkaUnavailableError, LogFaultError
from streamydb.records.problems import PROBLEMS

PROBLEM_MEDIA_TYPE: Final = "application/problem+json"


class ProblemDetails(msgspec.Struct, omit_defaults=True):
    """The members that the answers have; further ones depend on the type."""

    type: str
    title: str
    status: int
    detail: str
    id: str | None = None
    code: str | None = None
    error: str | None = None
    field: str | None = None
    given: str | None = None
    parameters: list[str] | None = None
    seq: int | None = None
    ts_ms: int | None = None
    facade_clock_ms: int | None = None
    version: int | None = None
    oldest: int | None = None
    latest: int | None = None
    constraint: str | None = None
    key: str | None = None
    violated: str | None = None
    generation: str | None = None
    health: dict[str, Any] | None = None


class ProblemError(StreamyError):
    """A request fails with a problem of the table; headers and members are further ones of the
    answer.
    """

    def __init__(
        self,
        slug: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        retry_after_s: int | None = None,
        **members: Any,
    ) -> None:
        super().__init__(f"{slug}: {detail}")
        self.problem = PROBLEMS[slug]
        self.detail = detail
        self.members = members
        self.headers = dict(headers or {})
        if retry_after_s is not None:
            self.headers["Retry-After"] = str(retry_after_s)


def type_of(slug: str) -> str:
    """Return the type URI of a problem: where this facade describes it."""
    return f"/problems/{slug}"


def log_failure_text(error: KafkaUnavailableError) -> str:
    """Return what clients are told of the log's failure: a fault's text, else only that there is
    one.
    """
    return str(error) if isinstance(error, LogFaultError) else "Kafka does not answer"


def problem_body(error: ProblemError) -> bytes:
    problem = error.problem
    members = {"type": type_of(problem.slug), "title": problem.title, "status": problem.status}
    return msgspec.json.encode({**members, "detail": error.detail, **error.members})
