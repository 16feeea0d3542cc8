"""docs/constraints.md is true: its transactions give its results, its programs run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import streamydb
from streamydb.constraints import core
from streamydb.constraints.schema import _KNOWN
from streamydb.limits import CONSTRAINT_STEPS_MAX, LOCK_ATTEMPTS_MAX, SCHEMA_NODES_MAX
from streamydb.testing.clients import MemoryHost
from streamydb.verify.oracle.core import Oracle
from tests.support.documented import assert_one_log

PAGE = (Path(__file__).parents[2] / "docs" / "constraints.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_examples_are_one_log() -> None:
    assert_one_log(PAGE, Oracle("db"), 9)


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_client_does_what_is_shown(example: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with MemoryHost() as host:
        monkeypatch.setattr(streamydb, "connect", lambda _: host.connect())
        exec(compile(example, "docs/constraints.md", "exec"), {})  # noqa: S102 - our own page


def test_rules_and_figures_are_those_of_the_code() -> None:
    for rule in (*core._RULES, *_KNOWN):
        assert f"`{rule}`" in PAGE, rule
    for figure in (CONSTRAINT_STEPS_MAX, SCHEMA_NODES_MAX, LOCK_ATTEMPTS_MAX):
        assert f" {figure:,} " in PAGE.replace("\n", " "), figure
