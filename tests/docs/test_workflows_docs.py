"""docs/workflows.md and docs/streams.md are true: the module deploys, the examples run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streamydb import limits
from streamydb.procedures.methods import METHODS
from streamydb.procedures.view import ProcedureView
from streamydb.records import Transaction, decode
from streamydb.records.emission import decode_emitted
from tests.support.documented import run_with_module

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "workflows.md").read_text(encoding="utf-8")
STREAMS = (DOCS / "streams.md").read_text(encoding="utf-8")
MODULE = re.search(r"^```python voter\.py\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE + STREAMS, re.MULTILINE | re.DOTALL)
RECORDS = re.findall(r"^```json transaction\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
assert MODULE is not None
TEXT = MODULE[1].encode()


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_example_runs(example: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run_with_module(example, "docs/workflows.md", "voter", TEXT, monkeypatch)


def test_the_record_of_a_stream_has_these_fields() -> None:
    shown = re.search(r"^```json\n(.*?)^```$", STREAMS, re.MULTILINE | re.DOTALL)
    assert shown is not None
    record = decode_emitted(shown[1].encode())
    for field in record.__struct_fields__:
        assert f"`{field}`" in STREAMS


def test_records_and_names_are_those_of_the_code() -> None:
    assert all(isinstance(decode(record.encode()), Transaction) for record in RECORDS)
    prefixes = re.findall(r"`([A-Z_]+_)…`", PAGE)
    assert prefixes
    assert all(any(name.startswith(prefix) for name in limits.LIMITS) for prefix in prefixes)
    for name in ("emit", "window", "call"):
        assert name in METHODS[ProcedureView]
        assert f"`{name}(" in PAGE
