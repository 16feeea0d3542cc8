"""The tables of measured figures are those of the kept answers."""

from __future__ import annotations

from bench import table


def test_the_pages_show_what_was_kept() -> None:
    assert table.table() in table.README.read_text("utf-8"), "python -m bench.table --write"
    for path, sections in (
        (table.PERFORMANCE, table.sections()), (table.FIGURES, table.figures_sections()),
        (table.OPERATIONS, table.operations_sections()),
    ):  # fmt: skip
        page = path.read_text("utf-8")
        for (begin, _), section in sections.items():
            assert section in page, f"{begin}: python -m bench.table --write"
