"""The tables of the TypeScript client are those of the facade and of the log."""

from __future__ import annotations

from tools.typescript import FILE, tables


def test_the_tables_are_up_to_date() -> None:
    assert FILE.read_text("utf-8") == tables(), "run: python -m tools.typescript"
