"""docs/procedures.md is true: its module deploys, its transactions give its results."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import streamydb
from streamydb.client.session import Options
from streamydb.client.testing import MemoryHost
from streamydb.limits import PROCEDURE_DEPTH_MAX, PROCEDURE_INTEGER_BITS_MAX, PROCEDURE_STEPS_MAX
from streamydb.oracle import Oracle
from streamydb.procedures.builtins import FUNCTIONS
from streamydb.procedures.methods import METHODS
from streamydb.procedures.modules import MemoryModules, compile_module
from streamydb.procedures.view import View
from streamydb.records import canonical, decode_value

PAGE = (Path(__file__).parents[2] / "docs" / "procedures.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```json (transaction|result)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MODULE = re.search(r"^```python bank\.py\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
assert MODULE is not None
TEXT = MODULE[1].encode()


def test_the_examples_are_one_log() -> None:
    oracle = Oracle("db", modules=MemoryModules({compile_module("bank", TEXT).hash: TEXT}))
    blocks = BLOCK.findall(PAGE)
    pairs = list(zip(blocks[::2], blocks[1::2], strict=True))
    assert len(pairs) >= 5
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
    module = compile_module("bank", TEXT)
    with MemoryHost() as host:
        host.database.modules.put(TEXT)
        record = {"module": "bank", "hash": module.hash, "procedures": module.procedures}
        host.connect().transaction(deploy=record)

        def connect(url: str, procedures: str) -> object:
            assert (url, procedures) == ("http://127.0.0.1:8080", "modules")
            return host.connect(options=Options(modules=host.database.modules))

        monkeypatch.setattr(streamydb, "connect", connect)
        exec(compile(example, "docs/procedures.md", "exec"), {})  # noqa: S102 - our own page


def test_figures_and_methods_are_those_of_the_code() -> None:
    for figure in (PROCEDURE_STEPS_MAX, PROCEDURE_DEPTH_MAX, PROCEDURE_INTEGER_BITS_MAX):
        assert f" {figure:,} " in PAGE
    for name in METHODS[View]:
        assert re.search(rf"`{name}[`(]", PAGE), name
    assert len(FUNCTIONS) > 20
