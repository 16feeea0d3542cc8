"""docs/tutorial.md ends with the application in examples/ticket_shop."""

from __future__ import annotations

import io
import subprocess
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from streamydb.cli.check import show
from streamydb.verify.check import CheckReport
from streamydb.verify.check.report import OutputCounts
from tests.support.served import serving
from tests.support.tutorial import EXAMPLE, ROOT, Reader, blocks, changed, finished, looking_on


def test_the_example_has_the_files_of_the_page() -> None:
    kept = {path.name for path in EXAMPLE.iterdir() if path.is_file()}
    assert kept == {*finished(), "page.html", "README.md"}


@pytest.mark.parametrize("name", sorted(finished()))
def test_a_file_of_the_example_is_what_the_page_leads_to(name: str) -> None:
    assert finished()[name] == (EXAMPLE / name).read_text("utf-8")


def test_the_script_that_is_shown_is_the_one_of_the_page() -> None:
    (shown,) = (block.text for block in blocks() if block.language == "js")
    page = (EXAMPLE / "page.html").read_text("utf-8")
    parts = shown.split("\n\n")
    assert len(parts) == 2
    assert all(part in page for part in parts)


def test_its_reader_gets_what_it_shows(tmp_path: Path) -> None:
    """On a database in memory; on a real one in tests/spark and, with the page, tests/browser."""

    def streamydb(*words: str) -> subprocess.CompletedProcess[str]:
        assert words == ("check",)
        progress = "✓ Checking bank: 1 transactions, 1/s (1 s)\n"
        return subprocess.CompletedProcess(words, 0, shown(1, 1, 1), progress)

    with serving() as facade:
        reader = Reader(tmp_path / "shop", facade.url, streamydb)
        assert reader.follow(lambda shop: looking_on(shop, facade.url)) >= 10


def shown(transactions: int, changes: int, keys: int) -> str:
    """What `streamydb check` prints of a database that is as it should be."""
    report = CheckReport(
        "bank", ok=True, transactions=transactions, keys=keys, resolved_seq=transactions,
        results=OutputCounts(transactions, transactions), changes=OutputCounts(changes, changes),
    )  # fmt: skip
    printed = io.StringIO()
    with redirect_stdout(printed):
        show(report)
    return printed.getvalue()


@pytest.mark.parametrize(
    ("page", "counts"), [("README.md", (3, 3, 3)), ("docs/tutorial.md", (412, 509, 89))]
)
def test_what_check_prints_is_shown_as_it_is(page: str, counts: tuple[int, int, int]) -> None:
    lines = [line.rstrip() for line in shown(*counts).splitlines()]
    assert len(lines) == 6
    assert "\n".join(["", *lines, ""]) in (ROOT / page).read_text("utf-8")


def test_the_page_has_sessions_and_every_block_is_known() -> None:
    found = blocks()
    assert sum(block.language == "pycon" for block in found) >= 8
    assert {block.language for block in found} == {"python", "pycon", "js", "console"}
    assert {block.name for block in found} == {*finished(), "", "server"}


def test_a_block_changes_a_file_as_its_reader_does() -> None:
    file = "from a import b\n\n\ndef one():\n    pass\n\n\ndef two():\n    pass\n"
    block = "from a import b, c\n\n\ndef one():\n    return 1\n\n\ndef new():\n    pass\n"
    assert changed(file, block) == block + "\n\ndef two():\n    pass\n"
