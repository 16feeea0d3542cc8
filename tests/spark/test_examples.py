"""examples/ on a real Kafka, Spark and facade, twice, with a replay of everything at the end.

What the others print on a database in memory: tests/docs/test_examples.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.examples import NAMES, assert_prints_what_it_says
from tests.support.stack import Stack

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


def test_every_example_does_what_it_says(tmp_path: Path) -> None:
    with Stack(tmp_path) as stack:
        home = {"STREAMYDB_HOME": str(stack.home)}
        for _ in range(2):
            for name in NAMES:
                assert_prints_what_it_says(name, stack.http, variables=home)
        checked = stack.run("check", "--json")
        assert json.loads(checked.stdout)["ok"], checked.stdout + checked.stderr
