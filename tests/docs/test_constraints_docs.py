"""docs/constraints.md is true: its transactions give its results, its programs run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import streamydb
from streamydb.client.testing import MemoryHost
from streamydb.constraints import core
from streamydb.constraints.schema import _KNOWN
from streamydb.limits import CONSTRAINT_STEPS_MAX, LOCK_ATTEMPTS_MAX, SCHEMA_NODES_MAX
from streamydb.oracle import Oracle
from streamydb.records import canonical, decode_value

PAGE = (Path(__file__).parents[2] / "docs" / "constraints.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```json (transaction|result)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_examples_are_one_log() -> None:
    oracle = Oracle("db", constraints=True)
    blocks = BLOCK.findall(PAGE)
    pairs = list(zip(blocks[::2], blocks[1::2], strict=True))
    assert len(pairs) >= 6
    for offset, (transaction, result) in enumerate(pairs):
        assert [transaction[0], result[0]] == ["transaction", "result"]
        actual = decode_value(
            oracle.apply(transaction[1].encode(), 0, offset, 1000 + offset)[0].value or b""
        )
        expected = decode_value(result[1].encode())
        assert list(actual) == list(expected)
        assert canonical(actual) == canonical(expected)


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
