"""docs/workflows.md and docs/streams.md are true: the module deploys, the examples run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import streamydb
from streamydb import limits
from streamydb.client.session import Options
from streamydb.client.testing import MemoryHost
from streamydb.procedures.methods import METHODS
from streamydb.procedures.modules import compile_module
from streamydb.procedures.view import View
from streamydb.records import Transaction, decode
from streamydb.records.emission import decode_emitted

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
    module = compile_module("voter", TEXT)
    with MemoryHost() as host:
        host.database.modules.put(TEXT)
        record = {"module": "voter", "hash": module.hash, "procedures": module.procedures}
        host.connect().transaction(deploy=record)

        def connect(url: str, procedures: str) -> object:
            assert (url, procedures) == ("http://127.0.0.1:8080", "modules")
            return host.connect(options=Options(modules=host.database.modules))

        monkeypatch.setattr(streamydb, "connect", connect)
        exec(compile(example, "docs/workflows.md", "exec"), {})  # noqa: S102 - our own page


def test_the_record_of_a_stream_has_these_fields() -> None:
    shown = re.search(r"^```json\n(.*?)^```$", STREAMS, re.MULTILINE | re.DOTALL)
    assert shown is not None
    record = decode_emitted(shown[1].encode())
    for field in record.__struct_fields__:
        assert f"`{field}`" in STREAMS


def test_records_and_figures_are_those_of_the_code() -> None:
    assert all(isinstance(decode(record.encode()), Transaction) for record in RECORDS)
    for figure in (
        limits.EMITTED_RECORDS_MAX, limits.EMITTED_BYTES_MAX, limits.WORKFLOW_NAMES_MAX,
        limits.WORKFLOW_DEPTH_MAX, limits.WORKFLOW_FAN_OUT_MAX, limits.WINDOW_ITEMS_MAX,
        limits.VALUE_BYTES_MAX,
    ):  # fmt: skip
        assert f" {figure:,} " in PAGE
    for name in ("emit", "window", "call"):
        assert name in METHODS[View]
        assert f"`{name}(" in PAGE
