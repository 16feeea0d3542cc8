"""docs/semantics.md is true: its examples run, and its tables are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streamydb import limits
from streamydb.errors import ABORTED_CODES, REJECTED_CODES
from streamydb.oracle import Oracle
from streamydb.records import canonical, decode_value
from streamydb.records.rejection import _OPERATIONS

PAGE = (Path(__file__).parents[2] / "docs" / "semantics.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```json (transaction|result)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_examples_run() -> None:
    """The transactions of the page are one log, from offset 0 and 1000 ms, a millisecond apart."""
    oracle = Oracle("db")
    blocks = BLOCK.findall(PAGE)
    transactions, results = blocks[::2], blocks[1::2]
    assert len(transactions) == len(results) >= 8
    for offset, (transaction, result) in enumerate(zip(transactions, results, strict=True)):
        assert [transaction[0], result[0]] == ["transaction", "result"]
        outputs = oracle.apply(transaction[1].encode(), 0, offset, 1000 + offset)
        expected = decode_value(result[1].encode())
        actual = decode_value(outputs[0].value or b"")
        assert list(actual) == list(expected)
        assert canonical(actual) == canonical(expected)


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
