"""Pages are short enough to be read: a decision in three sentences, the architecture in minutes."""

from __future__ import annotations

import configparser
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
DECISIONS = (DOCS / "decisions.md").read_text("utf-8")
BULLETS = [
    " ".join(text.split())
    for section in DECISIONS.split("\n## ")[1:]
    for text in re.split(r"^- ", section, flags=re.MULTILINE)[1:]
]

SENTENCES_MAX = 3
MINUTES_WORDS = 200
"""Of technical prose, read in a minute."""

GENERATED = ("proof.md", "reliability.md")


def sentences(text: str) -> int:
    """Count the sentences of a text; a dot in a name or a number ends none."""
    plain = re.sub(r"`[^`]*`|\([^)]*\)", "x", text).replace("**", "")
    return len(re.findall(r"[.?!](?=\s|$)", re.sub(r"\bno\. |e\.g\.|i\.e\.", "", plain)))


def test_a_decision_has_three_sentences() -> None:
    assert len(BULLETS) > 150
    assert [text for text in BULLETS if sentences(text) > SENTENCES_MAX] == []


def test_a_decision_begins_with_what_was_decided() -> None:
    assert [text for text in BULLETS if not text.startswith("**")] == []


def test_measured_figures_and_dates_are_in_measurements() -> None:
    found = re.compile(r"\b20\d\d-\d\d|\bmedian|\bp50\b|\bp99\b|\d µs (instead|a )|\d pairs?\b")
    assert [text for text in BULLETS if found.search(text)] == []


@pytest.mark.parametrize(
    ("text", "count"),
    [("**One.** Two. Three: 1.5 s.", 3), ("**A (`b.py`).** See `c.d`. Is it?", 3), ("None", 0)],
)
def test_sentences_are_counted(text: str, count: int) -> None:
    assert sentences(text) == count


def test_the_architecture_is_read_in_ten_minutes() -> None:
    text = (DOCS / "architecture.md").read_text("utf-8")
    prose = re.sub(r"^```.*?^```|^\|.*?$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert len(prose.split()) <= 10 * MINUTES_WORDS


def test_every_page_is_in_the_index_and_generated_tables_are_not() -> None:
    index = (DOCS / "README.md").read_text("utf-8")
    pages = sorted(page.name for page in DOCS.glob("*.md") if page.name != "README.md")
    missing = [page for page in pages if f"({page}" not in index]
    assert sorted(missing) == sorted(GENERATED)


@pytest.mark.parametrize("page", GENERATED)
def test_a_generated_table_is_linked(page: str) -> None:
    assert f"({page})" in (DOCS / "correctness.md").read_text("utf-8")


def test_a_newcomer_finds_every_entry_of_the_top_level_explained() -> None:
    """Those that every project has explain themselves; CONTRIBUTING.md explains the others."""
    usual = {
        "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md", "SECURITY.md",
        ".dockerignore", ".gitignore", "docs", "tests",
    }  # fmt: skip
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True, check=False
    ).stdout
    entries = {line.partition("/")[0] for line in listed.splitlines()}
    told = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    missing = [entry for entry in entries - usual if not re.search(rf"`{entry}[/`]", told)]
    assert missing == []


def test_settings_of_tools_are_in_one_file() -> None:
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    assert {name.partition(".")[0] for name in setup.sections()} == {"metadata", "options"}
    own = ("pytest.ini", "tox.ini", "mypy.ini", "ruff.toml", ".ruff.toml", ".importlinter")
    assert [name for name in own if (ROOT / name).exists()] == []
