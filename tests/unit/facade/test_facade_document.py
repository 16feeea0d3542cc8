"""Requests made from the OpenAPI document: no fault of the facade,
no answer that it does not name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from streamydb.facade import FacadeSettings, create_app
from streamydb.sql.pool import QueryPool
from tests.support.history import HistoryDatabase
from tests.support.queries import in_this_process
from tests.support.seeds import seeds

QUERIES = "^/v1/(query|sql)$"
OTHERS = "^(?!/v1/(changes|query|sql)$)"


def test_answers_are_as_documented() -> None:
    """Only a read of the future may be told to wait (503, read-model-behind)."""
    check(OTHERS, seeds(15, 3), at_least=19)


def test_answers_to_queries_are_as_documented(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer: statements are executed in a process."""
    monkeypatch.setattr(QueryPool, "run", in_this_process)
    check(QUERIES, seeds(4), at_least=2)


def check(paths: str, examples: int, *, at_least: int) -> None:
    """Send what the document allows, and what it does not, to each operation of some paths."""
    tests = dict(operation_tests(paths, examples))
    assert len(tests) >= at_least
    failed = {}
    for operation, test in tests.items():
        try:
            test()
        except Exception as problem:  # noqa: BLE001 - each operation is tried
            failed[operation] = problem
    for operation, first in failed.items():
        first.add_note(f"{operation}, of these that fail: {sorted(failed)}")
        raise first


def operation_tests(paths: str, examples: int) -> Iterator[tuple[str, Callable[[], None]]]:
    """Make a test of each operation, as Schemathesis' own plugin does for pytest.

    The plugin makes them while tests are collected, in every worker of a run, which takes a third
    of the time of the whole collection. So pyproject.toml keeps it away, and they are made here.
    """
    import schemathesis
    from schemathesis.checks import load_all_checks
    from schemathesis.core.result import Ok
    from schemathesis.generation.feedback import FeedbackSources
    from schemathesis.pytest._test_builder import build_operation_test

    database = HistoryDatabase()
    app = create_app(
        database.model, database.log, database.changes, FacadeSettings(read_timeout_s=0.02)
    )
    document = schemathesis.openapi.from_asgi("/schema/openapi.json", app)
    load_all_checks()

    @settings(max_examples=examples, suppress_health_check=list(HealthCheck))
    def answer_is_as_documented(case: Any) -> None:
        from schemathesis.checks import not_a_server_error
        from schemathesis.specs.openapi.checks import (
            content_type_conformance,
            response_headers_conformance,
            response_schema_conformance,
            status_code_conformance,
        )

        response = case.call()
        behind = response.status_code == 503 and b"read-model-behind" in response.content
        checks = [
            status_code_conformance, content_type_conformance, response_schema_conformance,
            response_headers_conformance, *([] if behind else [not_a_server_error]),
        ]  # fmt: skip
        case.validate_response(response, checks=checks)

    chosen = document.include(path_regex=paths)
    for found in chosen.get_all_operations():
        assert isinstance(found, Ok), found
        operation = found.ok()
        yield (
            operation.label,
            build_operation_test(
                config=chosen.config,
                operation=operation,
                test_func=answer_is_as_documented,
                given_kwargs={},
                feedback=FeedbackSources(),
            ),
        )
