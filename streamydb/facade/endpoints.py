"""The table of endpoints: all that the facade answers, and to whom.

From it come the routes, the methods that 405 and OPTIONS name, the parameters, the scopes, the
bound on transactions, the routes of the metrics, the console's traffic, and the OpenAPI document.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import msgspec

from streamydb.facade import kv, operations, queries
from streamydb.facade.answer import Answer
from streamydb.facade.changes import get_changes
from streamydb.facade.console.history import get_history
from streamydb.facade.console.pipelines import get_pipelines
from streamydb.facade.console.static import get_file, get_page
from streamydb.facade.console.stats import get_stats
from streamydb.facade.endpoint import (
    OPEN,
    READS_CONSTRAINTS,
    READS_KEY,
    READS_PREFIX,
    READS_STREAM,
    WRITES_KEY,
    Endpoint,
    Response,
)
from streamydb.facade.headers import CONTENT_PROBLEMS
from streamydb.facade.openapi import OPEN_OBJECT, TEXT, VALUE, document, of
from streamydb.facade.request import FacadeRequest
from streamydb.facade.sql_endpoint import post_query, post_sql
from streamydb.facade.streams import get_stream
from streamydb.facade.transactions import get_explanation, get_transaction, post_transaction

_CONDITIONS: Final = {
    "If-Match": 'Versions, as "41", "42", of which the key must have one; *: it must be there.',
    "If-None-Match": "Versions that the key must not have, on reads: that need no answer; *: any.",
}
_SENDING: Final = {
    "Idempotency-Key": "The transaction's id: send it again with the same content after a failure.",
    "Deadline-Ms": "The last commit time (ms since 1970) at which it may be executed.",
    "Prefer": "respond-async: answer once appended. wait=n, also with it: answer within n seconds.",
}

_READ: Final = (
    "invalid-parameter", "unauthorized", "forbidden", "snapshot-gone", "overloaded",
    "log-unavailable", "read-model-behind", "not-ready",
)  # fmt: skip
"""Problems of reads."""

_VERDICT: Final = (
    "invalid-parameter", "unauthorized", "forbidden", "transaction-unknown", "too-many-requests",
    "overloaded", "log-unavailable", "not-ready",
)  # fmt: skip
"""Problems of questions for a verdict."""

_BODY: Final = ("invalid-json", "body-timeout", "too-large", *CONTENT_PROBLEMS)
"""Problems of bodies."""

_WRITE_KEY: Final = (
    "invalid-parameter", "invalid-key", "unauthorized", "forbidden", "cross-origin", "aborted",
    "precondition-failed", "constraint-violated", "too-large", "id-reused", "deadline-passed",
    "invalid-transaction", "too-many-requests",
    "overloaded", "log-unavailable", "verdict-unknown",
)  # fmt: skip
"""Problems of writes of one key."""

_QUERY: Final = (
    "invalid-json", "invalid-parameter", "query-invalid", "unauthorized", "forbidden",
    "cross-origin", "body-timeout", "snapshot-gone", "answer-too-large", "too-large",
    "query-costly", "too-many-requests", "overloaded", "log-unavailable", "read-model-behind",
    "not-ready", "queries-off", *CONTENT_PROBLEMS,
)  # fmt: skip
"""Problems of queries in SQL."""

_LATER: Final = Response("Appended; ask Location.", of("pending"))
_UNDECIDED: Final = Response("Not decided yet.", of("pending"))


async def _get_schema(_request: FacadeRequest, _query: None) -> Answer:
    """Send the OpenAPI document."""
    return Answer(_document(), {"Content-Type": "application/json"}, common=())


@cache
def _document() -> bytes:
    return msgspec.json.encode(document(ENDPOINTS))


_KEYS: Final = (
    Endpoint(
        method="GET", path="/v1/kv/{key}", rest="text", answer=kv.get_value,
        query=queries.ReadQuery, access=READS_KEY, work="read", headers=_CONDITIONS,
        answers={
            200: Response("The value.", VALUE),
            304: Response("The client has this version.", None),
        },
        problems=(*_READ, "invalid-key", "key-not-found", "precondition-failed"),
    ),
    Endpoint(
        method="PUT", path="/v1/kv/{key}", rest="text", answer=kv.put_value,
        query=queries.ExpiryQuery, access=WRITES_KEY, appends="always", work="write",
        headers={**_CONDITIONS, **_SENDING}, body=VALUE,
        answers={
            200: Response("Committed.", of("result")),
            201: Response("Committed, created.", of("result")), 202: _LATER,
        },
        problems=(*_WRITE_KEY, "invalid-json", "body-timeout", *CONTENT_PROBLEMS),
    ),
    Endpoint(
        method="DELETE", path="/v1/kv/{key}", rest="text", answer=kv.delete_value,
        access=WRITES_KEY, appends="always", work="write", headers={**_CONDITIONS, **_SENDING},
        answers={200: Response("Committed.", of("result")), 202: _LATER},
        problems=_WRITE_KEY,
    ),
    Endpoint(
        method="GET", path="/v1/kv", answer=kv.list_values, query=queries.ListQuery, work="read",
        answers={200: Response("A page.", of("entries"))}, problems=_READ,
    ),
    Endpoint(
        method="POST", path="/v1/read", answer=kv.read_values, work="read", body=of("read_request"),
        answers={200: Response("The entries, null: absent.", of("reading"))},
        problems=(*_READ, "invalid-json", "invalid-key", "answer-too-large", *_BODY),
    ),
    Endpoint(
        method="GET", path="/v1/history/{key}", rest="text", answer=get_history,
        query=queries.HistoryQuery, access=READS_KEY, work="read",
        answers={200: Response("The versions.", OPEN_OBJECT)}, problems=(*_READ, "invalid-key"),
    ),
)  # fmt: skip
"""Keys and values."""

_TRANSACTIONS: Final = (
    Endpoint(
        method="POST", path="/v1/transactions", answer=post_transaction, appends="always",
        work="write", headers=_SENDING, body=of("transaction"),
        answers={200: Response("The verdict, committed or aborted.", of("result")), 202: _LATER},
        problems=(
            "invalid-json", "invalid-parameter", "unauthorized", "forbidden", "cross-origin",
            "body-timeout", "too-large", "invalid-transaction", "id-reused", "deadline-passed",
            "too-many-requests", *CONTENT_PROBLEMS,
            "overloaded", "log-unavailable", "verdict-unknown",
        ),
    ),
    Endpoint(
        method="GET", path="/v1/transactions/{id}", rest="text", answer=get_transaction,
        query=queries.VerdictQuery, work="read",
        headers={"Prefer": "wait=n: wait for the verdict n seconds."},
        answers={200: Response("The verdict.", of("result")), 202: _UNDECIDED}, problems=_VERDICT,
    ),
    Endpoint(
        method="GET", path="/v1/explanations/{id}", rest="text", answer=get_explanation,
        query=queries.VerdictQuery,
        answers={200: Response("Its life.", of("explanation")), 202: _UNDECIDED},
        problems=(*_VERDICT, "answer-too-large"),
    ),
)  # fmt: skip

_FEEDS: Final = (
    Endpoint(
        method="GET", path="/v1/changes", answer=get_changes, query=queries.ChangesQuery,
        access=READS_PREFIX, endless=True,
        headers={"Last-Event-ID": "Go on after this event; goes before `since`."},
        answers={
            200: Response("Server-sent events; data is a change.", TEXT, "text/event-stream"),
        },
        problems=(
            "invalid-parameter", "unauthorized", "forbidden", "slow-reader", "snapshot-gone",
            "too-many-requests", "overloaded", "log-unavailable", "not-ready",
        ),
    ),
    Endpoint(
        method="GET", path="/v1/streams/{name}", rest="text", answer=get_stream,
        query=queries.StreamQuery, access=READS_STREAM,
        answers={200: Response("A page.", of("emissions"))},
        problems=(
            "invalid-parameter", "unauthorized", "forbidden", "no-such-stream",
            "too-many-requests", "overloaded", "log-unavailable", "read-model-behind", "not-ready",
        ),
    ),
)  # fmt: skip
"""What goes on: changes, and the streams of procedures."""

_SQL: Final = (
    Endpoint(
        method="POST", path="/v1/query", answer=post_query, body=of("query_request"),
        answers={200: Response("The rows.", of("table"))}, problems=_QUERY,
    ),
    Endpoint(
        method="POST", path="/v1/sql", answer=post_sql, appends="perhaps", body=of("sql_request"),
        headers={name: _SENDING[name] for name in ("Idempotency-Key", "Deadline-Ms")},
        answers={200: Response("The results.", of("sql_answer"))},
        problems=(
            *_QUERY, "constraint-violated", "aborted", "invalid-transaction", "id-reused",
            "deadline-passed", "verdict-unknown",
        ),
    ),
)  # fmt: skip

_STATE: Final = (
    Endpoint(
        method="GET", path="/v1/constraints", answer=kv.get_constraints, query=queries.ReadQuery,
        access=READS_CONSTRAINTS,
        answers={200: Response("The constraints by name.", OPEN_OBJECT)}, problems=_READ,
    ),
    Endpoint(
        method="GET", path="/v1/limits", answer=operations.get_limits,
        answers={200: Response("The limits.", OPEN_OBJECT)}, problems=("unauthorized",),
    ),
    Endpoint(
        method="GET", path="/v1/stats", answer=get_stats, query=queries.StatsQuery,
        answers={200: Response("The figures.", OPEN_OBJECT)},
        problems=("unauthorized", "invalid-parameter", "not-ready"),
    ),
    Endpoint(
        method="GET", path="/v1/pipelines", answer=get_pipelines,
        answers={200: Response("The pipelines.", of("pipelines"))}, problems=("unauthorized",),
    ),
    Endpoint(
        method="GET", path="/metrics", answer=operations.get_metrics,
        answers={200: Response("Metrics.", TEXT, "text/plain")}, problems=("unauthorized",),
    ),
    Endpoint(
        method="GET", path="/health/live", answer=operations.get_live, access=OPEN, any_host=True,
        answers={200: Response("It runs.", of("live"))},
    ),
    Endpoint(
        method="GET", path="/health/ready", answer=operations.get_ready, query=queries.ReadyQuery,
        access=OPEN, any_host=True, answers={200: Response("It is ready.", of("health"))},
        problems=("not-ready",),
    ),
)  # fmt: skip
"""The state of the database and of the facade."""

_PAGES: Final = (
    Endpoint(
        method="GET", path="/problems", answer=operations.get_problems, access=OPEN,
        answers={200: Response("The types.", {"type": "array", "items": of("problem_type")})},
    ),
    Endpoint(
        method="GET", path="/problems/{slug}", rest="segment", answer=operations.get_problem,
        access=OPEN, answers={200: Response("The type.", of("problem_type"))},
        problems=("no-such-endpoint",),
    ),
    Endpoint(method="GET", path="/schema", answer=_get_schema, access=OPEN, query=None),
    Endpoint(
        method="GET", path="/schema/openapi.json", answer=_get_schema, access=OPEN, query=None
    ),
    Endpoint(method="GET", path="/", answer=get_page, access=OPEN),
    Endpoint(
        method="GET", path="/console/{name}", rest="segments", answer=get_file, access=OPEN
    ),
)  # fmt: skip
"""What holds no data: the problem types, this document, the console's page."""

ENDPOINTS: Final = (*_KEYS, *_TRANSACTIONS, *_FEEDS, *_SQL, *_STATE, *_PAGES)
