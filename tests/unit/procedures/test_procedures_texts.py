"""Texts in procedures: as Unicode 14.0 has them, whatever this Python knows."""

from __future__ import annotations

import runpy
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from streamydb.procedures import unicode14
from streamydb.procedures.machine import Machine
from streamydb.procedures.methods import METHODS
from streamydb.procedures.texts import pinned, pinned_repr, require_known

ROOT = Path(__file__).resolve().parents[3]
CASED = (
    "capitalize", "casefold", "isalnum", "isalpha", "isdecimal", "isdigit", "islower", "isspace",
    "isupper", "lower", "lstrip", "rstrip", "strip", "title", "upper", "split", "rsplit",
)  # fmt: skip
OLD = unicodedata.unidata_version == "14.0.0"
LETTER, SPACELESS, RECASED = "\U0001e4d0", "\u0378", "\u0264\u019b\u0295"
"""A letter of Unicode 15.0; what none has; what later ones change."""


def unassigned() -> set[int]:
    found: set[int] = set()
    for run in unicode14.UNASSIGNED.split():
        first, *last = (int(point, 16) for point in run.split("-"))
        found.update(range(first, (last or [first])[0] + 1))
    return found


def test_the_table_is_that_of_unicode_14() -> None:
    known = unassigned()
    here = {p for p in range(sys.maxunicode + 1) if unicodedata.category(chr(p)) == "Cn"}
    assert here <= known
    if OLD:
        assert here == known
        made = runpy.run_path(str(ROOT / "tools" / "unicode_table.py"))["table"]()
        assert made == Path(unicode14.__file__).read_text("utf-8")


@pytest.mark.parametrize("name", CASED)
def test_methods_give_what_python_311_gives(name: str) -> None:
    """On Python 3.11 nothing changes; elsewhere the answers that it gave are pinned below."""
    method, function = METHODS[str][name], getattr(str, name)
    texts = [f"{LETTER}aΣ b{RECASED} c{SPACELESS}", "Straße ΑΣ", " x\u2003", LETTER, RECASED, ""]
    for text in texts if OLD else texts[1:3]:
        assert method(Machine(), text) == function(text)


def later(function: Any, text: str) -> Any:
    """What a Python gives that has learned of more characters, by one that stands for them."""
    return pinned(lambda shown: function(shown.replace(LETTER, "A").replace("\u0264", "q")), text)


def test_characters_of_later_versions_have_no_meaning() -> None:
    assert later(str.isalpha, LETTER) is False
    assert later(str.lower, f"É{LETTER}") == f"é{LETTER}"
    assert later(str.upper, "\u0264é") == "\u0264É"
    assert pinned(str.strip, f"é{LETTER}é", "é") == LETTER
    assert pinned(str.split, f"é{LETTER} é", None) == [f"é{LETTER}", "é"]
    assert pinned(str.islower, RECASED) is True
    with pytest.raises(ValueError, match="too many"):
        pinned(str.upper, "".join(map(chr, sorted(unassigned())[:2200])))


def test_numbers_and_repr() -> None:
    assert require_known("٣") == "٣"
    with pytest.raises(ValueError, match="not a number"):
        require_known("\U0001e4f1")  # a digit of Unicode 15.0
    assert pinned_repr([f"é{LETTER}\u0378'"]) == '["é\\U0001e4d0\\u0378\'"]'
    assert Machine().shown(LETTER, quoted=True) == "'\\U0001e4d0'"
