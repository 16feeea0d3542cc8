"""The tests of this room start processes for queries as production does."""

from __future__ import annotations

import pytest

from streamydb.sql import pool
from tests.support.query_forks import START


@pytest.fixture(autouse=True)
def _real_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_start", START)
