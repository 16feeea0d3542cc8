"""Methods of texts that search from the right or for many characters: as Python's,
at any length.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamydb.procedures.texts import SEARCHES
from tests.support.procedures import evaluate, returned

PIECES = st.sampled_from(["a", "b", "aab", "aa" * 40, "b" * 70, "ab" * 33, "\u00e9", "\U0001f600"])
TEXTS = st.lists(PIECES, max_size=9).map("".join)
PLACES = st.one_of(st.none(), st.integers(-300, 300))


def outcome(function: Any, *args: Any) -> Any:
    try:
        return function(*args)
    except (ValueError, TypeError) as error:
        return type(error)


@settings(max_examples=400)
@given(st.sampled_from([*SEARCHES]), TEXTS, TEXTS, PLACES, PLACES)
def test_the_results_are_those_of_python(
    name: str, text: str, part: str, first: int | None, second: int | None
) -> None:
    own, pythons = SEARCHES[name], getattr(str, name)
    for args in ((part,), (part, first), (part, first, second), (part, first, second, 1), ()):
        assert outcome(own, text, *args) == outcome(pythons, text, *args)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return ('a' * n).rfind('a' + 'b' + 'a' * (n // 2))", -1),
        ("return ('a' * n).rpartition('a' + 'b' + 'a' * (n // 2))[:2]", ["", ""]),
        ("return len(('a' * n).rsplit('a' + 'b' + 'a' * (n // 2)))", 1),
        ("return ('a' * n).strip('b' * n + 'a')", ""),
        ("return len(('\\u00e9' * n).lower())", 400_000),
    ],
)
def test_long_texts_are_searched_in_a_moment(body: str, expected: Any) -> None:
    """Python took up to minutes, in a few steps."""
    assert returned(evaluate(body, n=400_000)) == expected
