"""The glossary has every noun of the engine: its classes and modules are named by its words.

A name that fails here is mended by a word of docs/glossary.md: use it, or add a line if the thing
is new. `PLAIN` is for words that every programmer knows; `EARLIER` takes no new ones.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GLOSSARY = ROOT / "docs" / "glossary.md"
ROOMS = [
    folder
    for name in (
        "parser", "sequencer", "sorter", "planner", "key_processor", "txn_processor", "frames",
    )
    if (folder := ROOT / "streamydb" / name).is_dir()
]  # fmt: skip
FILES = [file for room in ROOMS for file in sorted(room.rglob("*.py"))]

PLAIN = frozenset(
    "all array batch bound budget buffer builder byte bytes cache character comparison "
    "compile compiler config context core count data decoder delta encoding error event "
    "execution executor expiry fault field file format hash hashing head history host inbox "
    "index init integer interpreter invariant jit join json last limit list map memory "
    "merge name new next number numeric object open option order outbox own pair part plain "
    "position private process processor progress protocol queue read reader rule scan "
    "scanner selection set single slice span stage store stream text time tree "
    "union update used weight window work writer written".split()
)
"""Words that mean here what they mean everywhere."""

EARLIER = frozenset(
    "address arrived at care carefully child common compiled complete dated declared draft "
    "either ended ending enforce enforced exhausted finished first fixed found gather "
    "gathered gatherer granted held idwindow interning judged kept keyed known life named "
    "narrowed note notice outcome overtaken partial planned ragged released removed repeat "
    "repeated repetition routed row scanned seam see seen shared sized stored swept teller "
    "timed turn unresolved use".split()
)
"""Words of names from before this rule. They go as the names become nouns; none may come."""


def singular(word: str) -> str:
    """Return a noun without the ending of a plural."""
    for ending, instead in (("ies", "y"), ("sses", "ss"), ("xes", "x"), ("shes", "sh"), ("s", "")):
        if word.endswith(ending) and not word.endswith("ss") and len(word) > len(ending) + 1:
            return word.removesuffix(ending) + instead
    return word


def words_of(name: str) -> list[str]:
    """Divide `CamelCase` or `snake_case` into its words, in the singular."""
    found = re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z]*|[a-z]+", name)
    return [singular(word.lower()) for word in found]


def glossary() -> set[str]:
    """Return all words of the nouns that the glossary defines."""
    rows = re.findall(r"^\| ([^|]+?) \|", GLOSSARY.read_text("utf-8"), re.MULTILINE)
    nouns = [noun for row in rows if row != "word" for noun in row.split(", ")]
    return {word for noun in nouns for word in words_of(noun)}


WORDS = glossary() | {singular(word) for word in PLAIN | EARLIER}


def names(file: Path) -> Iterator[str]:
    """Walk over the names of a module and of its classes."""
    yield file.stem.strip("_")
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ClassDef):
            yield node.name.strip("_")


def test_names_are_made_of_words_of_the_glossary() -> None:
    strange = {
        f"{file.relative_to(ROOT)}: {name}": bad
        for file in FILES
        for name in names(file)
        if (bad := set(words_of(name)) - WORDS)
    }
    assert strange == {}, "use a word of docs/glossary.md, or add the new noun there"


def test_rooms_are_found() -> None:
    assert {room.name for room in ROOMS} >= {"sequencer", "sorter", "key_processor"}
    assert len(FILES) > 80


def test_each_noun_is_defined_once_by_a_sentence() -> None:
    rows = re.findall(r"^\| ([^|]+?) \| (.+) \|$", GLOSSARY.read_text("utf-8"), re.MULTILINE)
    nouns = [noun for noun, _ in rows if noun != "word"]
    assert len(nouns) > 80
    assert len(set(nouns)) == len(nouns)
    assert [noun for noun, text in rows if noun != "word" and not text.endswith(".")] == []


def test_a_plain_word_is_no_noun_of_the_glossary() -> None:
    """A word stands in one list: else it could be taken out of the glossary unnoticed."""
    nouns = set(re.findall(r"^\| ([a-z]+) \|", GLOSSARY.read_text("utf-8"), re.MULTILINE))
    assert sorted(nouns & (PLAIN | EARLIER)) == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("KeyTransactionProcessor", ["key", "transaction", "processor"]),
        ("RangeEntries", ["range", "entry"]),
        ("id_window", ["id", "window"]),
        ("JSONTokens", ["json", "token"]),
        ("epoch marker", ["epoch", "marker"]),
        ("ValueSizes", ["value", "size"]),
    ],
)
def test_a_name_is_divided_into_words(name: str, words: list[str]) -> None:
    assert words_of(name) == words
