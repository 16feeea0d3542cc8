"""What the tests of layers share: the workbenches of their tables."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from streamydb.client.forks import Kept
from streamydb_layers.tables.workbench import Workbench, Workbenches


@pytest.fixture(scope="session", autouse=True)
def _used_again() -> Iterator[None]:
    """Let a test use the workbenches of those before it: to make one takes DuckDB 20 ms.

    Production uses a workbench for all statements of a `Tables`, so its content goes after each.
    """
    free: Kept[Workbench] = Kept(Workbench, Workbench.close)

    def made(self: Workbenches) -> None:
        self._kept = Kept(free.take, free.give)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Workbenches, "__init__", made)
        yield
    free.close()
