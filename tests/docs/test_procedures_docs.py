"""docs/procedures.md is true: its module deploys, its transactions give its results."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streamydb.limits import PROCEDURE_DEPTH_MAX, PROCEDURE_INTEGER_BITS_MAX, PROCEDURE_STEPS_MAX
from streamydb.procedures.builtins import FUNCTIONS
from streamydb.procedures.methods import METHODS
from streamydb.procedures.modules import MemoryModules, compile_module
from streamydb.procedures.view import ProcedureView
from streamydb.verify.oracle.core import Oracle
from tests.support.documented import assert_one_log, run_with_module

PAGE = (Path(__file__).parents[2] / "docs" / "procedures.md").read_text(encoding="utf-8")
MODULE = re.search(r"^```python bank\.py\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
assert MODULE is not None
TEXT = MODULE[1].encode()


def test_the_examples_are_one_log() -> None:
    oracle = Oracle("db", modules=MemoryModules({compile_module("bank", TEXT).hash: TEXT}))
    assert_one_log(PAGE, oracle, 5)


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_client_does_what_is_shown(example: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run_with_module(example, "docs/procedures.md", "bank", TEXT, monkeypatch)


def test_figures_and_methods_are_those_of_the_code() -> None:
    for figure in (PROCEDURE_STEPS_MAX, PROCEDURE_DEPTH_MAX, PROCEDURE_INTEGER_BITS_MAX):
        assert f" {figure:,} " in PAGE
    for name in METHODS[ProcedureView]:
        assert re.search(rf"`{name}[`(]", PAGE), name
    assert len(FUNCTIONS) > 20
