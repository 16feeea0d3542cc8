"""docs/semantics.md is true: its examples run, and its tables are those of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamydb import limits
from streamydb.errors import ABORTED_CODES, REJECTED_CODES
from streamydb.records.rejection import _OPERATIONS
from streamydb.verify.oracle.core import Oracle
from tests.support.documented import assert_one_log

PAGE = (Path(__file__).parents[2] / "docs" / "semantics.md").read_text(encoding="utf-8")


def test_the_examples_run() -> None:
    assert_one_log(PAGE, Oracle("db"), 8)


@pytest.mark.parametrize("codes", [REJECTED_CODES, ABORTED_CODES], ids=["rejected", "aborted"])
def test_every_reason_code_is_in_its_table(codes: dict[str, str]) -> None:
    rows = "\n".join(f"| `{code}` | {meaning} |" for code, meaning in codes.items())
    assert f"|---|---|\n{rows}\n" in f"{PAGE}\n", f"the table should be:\n{rows}"


def test_every_limit_is_in_the_table() -> None:
    rows = "\n".join(
        f"| `{name}` | {value:,} | {limits.DESCRIPTIONS[name]} |"
        for name, value in limits.LIMITS.items()
    )
    assert f"|---|---|---|\n{rows}\n" in PAGE, f"the table should be:\n{rows}"


@pytest.mark.parametrize("operation", _OPERATIONS)
def test_every_operation_is_documented(operation: str) -> None:
    assert f"`{operation}`" in PAGE
