"""What tests of documentation share: transactions of a page as one log, programs with a module."""

from __future__ import annotations

import re

import pytest

import streamydb
from streamydb.client.session import Options
from streamydb.procedures.modules import compile_module
from streamydb.records import canonical, decode_value
from streamydb.testing.clients import MemoryHost
from streamydb.verify.oracle.core import Oracle

__all__ = ["assert_one_log", "run_with_module"]

_BLOCK = re.compile(r"^```json (transaction|result)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def assert_one_log(page: str, oracle: Oracle, pairs_min: int) -> None:
    """The transactions of a page give the results beside them.

    They are one log, from offset 0 and 1000 ms on, a millisecond apart.
    """
    blocks = _BLOCK.findall(page)
    pairs = list(zip(blocks[::2], blocks[1::2], strict=True))
    assert len(pairs) >= pairs_min
    for offset, (transaction, result) in enumerate(pairs):
        assert [transaction[0], result[0]] == ["transaction", "result"]
        outputs = oracle.apply(transaction[1].encode(), 0, offset, 1000 + offset)
        actual, expected = decode_value(outputs[0].value or b""), decode_value(result[1].encode())
        assert list(actual) == list(expected)
        assert canonical(actual) == canonical(expected)


def run_with_module(
    example: str, page: str, name: str, text: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run a program of a page on a database in memory where a module is deployed."""
    module = compile_module(name, text)
    with MemoryHost() as host:
        host.database.modules.put(text)
        host.connect().transaction(deploy=module.record)

        def connect(url: str, procedures: str) -> object:
            assert (url, procedures) == ("http://127.0.0.1:8080", "modules")
            return host.connect(options=Options(modules=host.database.modules))

        monkeypatch.setattr(streamydb, "connect", connect)
        exec(compile(example, page, "exec"), {})  # noqa: S102 - our own page
