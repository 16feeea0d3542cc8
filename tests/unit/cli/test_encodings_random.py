"""Any text can be shown in any encoding: what it has as it is,
the rest by numbers; JSON is JSON.
"""

from __future__ import annotations

import io
import json
import sys
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamydb.cli import common
from streamydb.cli.phases import Phases, bar
from tests.support.seeds import seeds

ENCODINGS = ["ascii", "latin-1", "cp1252", "cp037", "koi8-r", "gbk", "gb18030", "shift_jis",
             "euc-kr", "iso2022_jp", "utf-7", "utf-8", "utf-8-sig", "utf-16", "utf-32"]  # fmt: skip
HANDLERS = ["strict", "surrogateescape", "replace", "backslashreplace", "xmlcharrefreplace"]
TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.randomized
@settings(max_examples=seeds(150), deadline=None)
@given(st.sampled_from(ENCODINGS), st.sampled_from(HANDLERS), TEXTS, VALUES)
@example("latin-1", "strict", "Grüße Ω", {"ключ": "\U0001f600"})
@example("shift_jis", "strict", "a\\~¥", {"¥": "\\"})
def test_any_text_is_shown_in_any_encoding(
    encoding: str, errors: str, text: str, value: Any
) -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding=encoding, errors=errors, newline="\n")
    err = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors=errors)
    with patch.object(sys, "stdout", out), patch.object(sys, "stderr", err):
        common.show_what_can_be()
        out.write(common.plain(text) + "\n")
        common.print_json(value)
        common.say_error(text)
        console = common.stdout()
        console.print(common.tick(console, good=True), bar(1, 2))
        with Phases().phase(text):
            pass
        out.flush()
    lines = raw.getvalue().decode(encoding).split("\n")
    assert json.loads(lines[1]) == value
    shown = common.plain(text)
    try:
        kept = shown.encode(encoding).decode(encoding) == shown
    except UnicodeEncodeError:
        kept = False
    if kept:
        assert lines[0] == shown
    elif errors in {"strict", "surrogateescape", "backslashreplace"}:
        assert "\\" in lines[0]
