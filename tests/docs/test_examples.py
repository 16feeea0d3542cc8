"""examples/: each program does what it says, on a database in memory.

All twice, and on a real one: tests/spark/test_examples.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from streamydb.local.module_folder import FolderModules
from streamydb.testing.memory import MemoryDatabase
from tests.support.examples import FOLDER, NAMES, assert_prints_what_it_says, promised, run
from tests.support.served import serving

NEED_MORE = {"dataframes", "past"}
"""Those that need Spark or Kafka."""


@pytest.mark.parametrize("name", sorted({*NAMES} - NEED_MORE))
def test_it_prints_what_it_says(name: str, tmp_path: Path) -> None:
    database = MemoryDatabase(modules=FolderModules([tmp_path]))
    variables = {"STREAMYDB_PROCEDURES": str(tmp_path)}
    with serving(database=database) as facade:
        assert_prints_what_it_says(name, facade.url, variables=variables)


def test_nothing_is_deployed_where_there_is_no_pipeline(tmp_path: Path) -> None:
    database = MemoryDatabase()
    with serving(database=database) as facade:
        refused = run("stored_procedures", facade.url, variables={"STREAMYDB_HOME": str(tmp_path)})
    assert (refused.returncode, refused.stdout) == (1, "")
    assert f"There is no database bank in {tmp_path}" in refused.stderr
    assert database.log.records == []


def test_every_example_is_listed_and_promises_something() -> None:
    listed = (FOLDER / "README.md").read_text("utf-8")
    for name in NAMES:
        assert f"| [{name}.py]({name}.py) |" in listed
        assert len(promised(name).splitlines()) >= 5
