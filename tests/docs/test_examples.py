"""examples/: each program does what it says, twice on one database, here one in memory.

On a real one: tests/spark/test_examples.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from streamydb.facade.memory import MemoryDatabase
from streamydb.procedures.folder import FolderModules
from tests.examples import NAMES, assert_prints_what_it_says
from tests.served import serving

NEED_SPARK = {"dataframes"}


@pytest.mark.parametrize("name", sorted({*NAMES} - NEED_SPARK))
def test_it_prints_what_it_says(name: str, tmp_path: Path) -> None:
    database = MemoryDatabase(modules=FolderModules([tmp_path]))
    variables = {"STREAMYDB_PROCEDURES": str(tmp_path)}
    with serving(database=database) as facade:
        for _ in range(2):
            assert_prints_what_it_says(name, facade.url, variables=variables)
