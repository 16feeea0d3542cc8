"""Index keys: encoded order is value order; updates and merge patches do what they say."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamydb.limits import INTEGER_MAX, INTEGER_MIN, KEY_BYTES_MAX
from streamydb_layers.documents.changes import Update, merge_patch
from streamydb_layers.documents.encoding import encode
from streamydb_layers.documents.indexes import CollectionIndexes, Index, IndexBounds
from streamydb_layers.errors import (
    IndexValueTooLongError,
    InvalidArgumentError,
    InvalidNameError,
    UpdateError,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.text(
    ' !"~/0:\x00\x7f\x80a\U0010ffff\ud7ff\ue000', max_size=4
)
NUMBERS = (
    st.integers(INTEGER_MIN, INTEGER_MAX)
    | st.integers(-5, 5)
    | st.integers(2**53 - 4, 2**53 + 4)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([2.0**53, 2.0**63, -(2.0**63), 0.0, -0.0, 5e-324, 1.5])
)
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS


def rank(value: Any) -> tuple[int, Any]:
    """What values are sorted by: null, booleans, numbers, texts by code point."""
    if value is None or isinstance(value, bool):
        return (0, 0) if value is None else (1, value)
    return (2, value) if isinstance(value, int | float) else (3, value)


def compared(left: Any, right: Any) -> int:
    """-1, 0 or 1."""
    return int(left > right) - int(left < right)


@given(left=SCALARS, right=SCALARS, down=st.booleans())
@example(left=2**53 + 1, right=2.0**53, down=False)
@example(left=INTEGER_MAX, right=2.0**63, down=True)
@example(left=-0.0, right=0, down=False)
def test_the_order_of_keys_is_that_of_values(left: Any, right: Any, *, down: bool) -> None:
    keys = [encode([value], [down]).encode() for value in (left, right)]
    expected = compared(rank(left), rank(right))
    assert compared(*keys) == (-expected if down else expected)
    if expected:
        assert not keys[0].startswith(keys[1])


@given(
    st.lists(st.tuples(SCALARS, SCALARS), min_size=2, max_size=2),
    st.tuples(st.booleans(), st.booleans()),
)
def test_several_fields_are_compared_one_after_the_other(
    rows: list[tuple[Any, Any]], down: tuple[bool, bool]
) -> None:
    keys = [encode(row, down).encode() for row in rows]
    fields = [
        compared(rank(left), rank(right)) * (-1 if d else 1)
        for left, right, d in zip(*rows, down, strict=True)
    ]
    assert compared(*keys) == (fields[0] or fields[1])


def matches(value: Any, bounds: IndexBounds) -> bool:
    """Whether a value of a field is within bounds."""
    if bounds.prefix is not None:
        return isinstance(value, str) and value.startswith(bounds.prefix)
    for bound, wanted in (("ge", {0, 1}), ("gt", {1}), ("le", {0, -1}), ("lt", {-1})):
        limit = getattr(bounds, bound)
        if limit is not None:
            same = rank(limit)[0] == rank(value)[0]
            if not same or compared(rank(value), rank(limit)) not in wanted:
                return False
    return True


LIMITS: st.SearchStrategy[tuple[Any, Any]] = st.one_of(
    st.tuples(NUMBERS, NUMBERS), st.tuples(TEXTS, TEXTS), st.tuples(st.booleans(), st.booleans())
)
BOUNDS = st.builds(IndexBounds, prefix=TEXTS) | st.builds(
    lambda lower, upper, limits: IndexBounds(
        **{name: limit for name, limit in zip((lower, upper), limits, strict=True) if name}
    ),
    st.sampled_from(["ge", "gt", None]),
    st.sampled_from(["le", "lt", None]),
    LIMITS,
)


@given(values=st.lists(SCALARS, max_size=12), bounds=BOUNDS, down=st.booleans())
def test_a_range_of_keys_is_what_a_query_wants(
    values: list[Any], bounds: IndexBounds, *, down: bool
) -> None:
    index = Index("i", 3, ("-f" if down else "f",), unique=False, ready=True)
    keys = index.range("doc/c/", bounds)
    for value in values:
        key = index.key("doc/c/", "id", {"f": value})
        assert key is not None
        inside = keys.start.encode() <= key.encode() < keys.end.encode()
        assert inside == matches(value, bounds), (key, keys)


def test_what_is_not_in_an_index() -> None:
    index = Index("i", 0, ("a.b", "-c"), unique=False, ready=True)
    assert index.key("", "x", {"a": {"b": 1}}) is None
    assert index.key("", "x", {"a": [1], "c": 1}) is None
    assert index.key("", "x", {"a": {"b": {}}, "c": 1}) is None
    assert index.key("", "x", {"a": {"b": None}, "c": 1}) is not None
    assert index.key("", "x", {"a": {"b": math.inf}, "c": 1}) is None
    assert index.key("", "x", {"a": {"b": 2**63}, "c": 1}) is None


def test_values_fit_in_a_key_or_are_refused() -> None:
    index = Index("i", 0, ("a",), unique=True, ready=True)
    most = KEY_BYTES_MAX - len(index.prefix("doc/c/")) - 2
    assert len(index.key("doc/c/", "x", {"a": "a" * most}) or "") == KEY_BYTES_MAX
    with pytest.raises(IndexValueTooLongError, match="481"):
        index.key("doc/c/", "x", {"a": "a" * (most + 1)})


@pytest.mark.parametrize(
    "bounds",
    [
        IndexBounds(equals=[1, 2, 3]), IndexBounds(equals=[1, 2], ge=1),
        IndexBounds(equals=[[]]),  # type: ignore[list-item]
        IndexBounds(ge=1, gt=1), IndexBounds(ge=1, lt="a"), IndexBounds(prefix="a", ge="a"),
        IndexBounds(ge=2**64),
    ],
)  # fmt: skip
def test_queries_that_make_no_sense_are_refused(bounds: IndexBounds) -> None:
    with pytest.raises(InvalidArgumentError):
        Index("i", 0, ("a", "b"), unique=False, ready=True).range("", bounds)


@pytest.mark.parametrize(
    "fields", [[], ["a", "-a"], [""], ["a"] * 9, [1], [f"a{number}" for number in range(9)]]
)
def test_indexes_that_make_no_sense_are_refused(fields: list[str]) -> None:
    with pytest.raises(InvalidArgumentError):
        CollectionIndexes.of(None).with_new("i", fields, unique=False)
    with pytest.raises(InvalidNameError):
        CollectionIndexes.of(None).with_new("i/j", ["a"], unique=False)


RFC_7396 = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}), ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}), ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}), ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}), (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]), ({"a": "foo"}, None, None), ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}), ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]  # fmt: skip


@pytest.mark.parametrize(("target", "patch", "merged"), RFC_7396)
def test_merge_patches_are_those_of_the_rfc(target: Any, patch: Any, merged: Any) -> None:
    assert merge_patch(target, patch) == merged


def test_updates_change_paths_and_nothing_else() -> None:
    before = {"a": {"b": 1, "c": [1]}, "d": "x"}
    update = Update({"e.f": True}, {"a.b": 2, "n.m": 1.5}, {"a.c": 2, "l": {}}, ["d", "no.such"])
    after = {"a": {"b": 3, "c": [1, 2]}, "e": {"f": True}, "n": {"m": 1.5}, "l": [{}]}
    assert update.apply(before) == after
    assert before == {"a": {"b": 1, "c": [1]}, "d": "x"}


@pytest.mark.parametrize(
    "update",
    [
        Update(set={"s.x": 1}), Update(inc={"s": 1}), Update(push={"n": 1}),
        Update(inc={"n": "1"}),  # type: ignore[dict-item]
        Update(inc={"t": 1}), Update({"n": 1}, {"n": 1}), Update({"o": {}}, {"o.x": 1}),
        Update(set={"": 1}), Update(unset=["o", "o.x"]),
    ],
)  # fmt: skip
def test_updates_that_do_not_fit_are_refused(update: Update) -> None:
    with pytest.raises(UpdateError):
        update.apply({"s": "text", "n": 1, "t": True, "o": {"x": 1}})
