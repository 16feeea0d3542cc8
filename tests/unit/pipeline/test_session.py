"""The master that a user names, with the retries that it lacks."""

from __future__ import annotations

import pytest

from streamydb.pipeline.session import with_retries


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("local", "local[1,4]"),
        ("local[*]", "local[*,4]"),
        ("local[2]", "local[2,4]"),
        ("local[2,1]", "local[2,1]"),
        ("local-cluster[2,2,2048]", "local-cluster[2,2,2048]"),
        ("spark://host:7077", "spark://host:7077"),
    ],
)
def test_local_masters_retry_failed_tasks(given: str, used: str) -> None:
    assert with_retries(given) == used
