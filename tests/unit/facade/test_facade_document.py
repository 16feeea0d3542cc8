"""Requests made from the OpenAPI document: no fault of the facade,
no answer that it does not name.
"""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from streamydb.facade import FacadeSettings, create_app
from streamydb.sql.pool import QueryPool
from tests.support.history import HistoryDatabase
from tests.support.queries import in_this_process
from tests.support.seeds import seeds

DATABASE = HistoryDatabase()
APP = create_app(
    DATABASE.model, DATABASE.log, DATABASE.changes, FacadeSettings(read_timeout_s=0.02)
)
DOCUMENT = schemathesis.openapi.from_asgi("/schema/openapi.json", APP)
CHECKS = [
    status_code_conformance, content_type_conformance, response_schema_conformance,
    response_headers_conformance,
]  # fmt: skip


@DOCUMENT.exclude(path_regex="^/v1/(changes|query|sql)$").parametrize()
@settings(max_examples=seeds(15), suppress_health_check=list(HealthCheck))
def test_answers_are_as_documented(case: Any) -> None:
    """Only a read of the future may be told to wait (503, read-model-behind)."""
    check(case)


@DOCUMENT.include(path_regex="^/v1/(query|sql)$").parametrize()
@settings(max_examples=seeds(4), suppress_health_check=list(HealthCheck))
def test_answers_to_queries_are_as_documented(case: Any) -> None:
    """Fewer: statements are executed in a process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(QueryPool, "run", in_this_process)
        check(case)


def check(case: Any) -> None:
    response = case.call()
    behind = response.status_code == 503 and b"read-model-behind" in response.content
    case.validate_response(response, checks=CHECKS if behind else [*CHECKS, not_a_server_error])
