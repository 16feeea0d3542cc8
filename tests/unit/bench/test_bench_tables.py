"""The tables of measured figures are those of the kept answers."""

from __future__ import annotations

from bench import table


def test_the_pages_show_what_was_kept() -> None:
    assert table.table() in table.README.read_text("utf-8"), "python -m bench.table --write"
    page = table.PERFORMANCE.read_text("utf-8")
    for (begin, _), section in table.sections().items():
        assert section in page, f"{begin}: python -m bench.table --write"
