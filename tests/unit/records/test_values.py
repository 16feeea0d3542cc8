"""Values: one canonical form, equality by bytes, and what is no value."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamydb import errors, limits
from streamydb.errors import ValueRejected
from streamydb.records import canonical, canonical_number, decode_value, is_number
from tests.support.generators import JSON, NUMBERS


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (None, b"null"),
        (True, b"true"),
        (False, b"false"),
        (0, b"0"),
        (1.0, b"1"),
        (-0.0, b"0"),
        (-7.0, b"-7"),
        (2.0**53, b"9007199254740992"),
        (-(2.0**53), b"-9007199254740992"),
        (2.0**53 + 2, b"9007199254740994.0"),
        (2.0**63, b"9.223372036854776e18"),
        (1e16, b"1e16"),
        (0.1, b"0.1"),
        (5e-324, b"5e-324"),
        (2**63 - 1, b"9223372036854775807"),
        (-(2**63), b"-9223372036854775808"),
        ("", b'""'),
        ("é😀/<", '"é😀/<"'.encode()),
        ('"\\\n\t\x00\x1f\x7f', b'"\\"\\\\\\n\\t\\u0000\\u001f\x7f"'),
        ([], b"[]"),
        ({}, b"{}"),
        ([1.0, [None], {"a": 2.0}], b'[1,[null],{"a":2}]'),
        ({"b": 1, "a": 2, "B": 3}, b'{"B":3,"a":2,"b":1}'),
        ({"\ue000": 1, "\U0001f600": 2, "é": 3}, '{"é":3,"\ue000":1,"\U0001f600":2}'.encode()),
    ],
)
def test_canonical_bytes(value: Any, data: bytes) -> None:
    assert canonical(value) == data
    assert canonical(decode_value(data)) == data


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (2**63, errors.NUMBER_RANGE),
        (-(2**63) - 1, errors.NUMBER_RANGE),
        ([{"a": 2**64}], errors.NUMBER_RANGE),
        (float("nan"), errors.INVALID_JSON),
        ([float("inf")], errors.INVALID_JSON),
        ("\ud800", errors.INVALID_JSON),
        ({"\udc00": 1}, errors.INVALID_JSON),
        ({1: 1}, errors.INVALID_JSON),
        ({1, 2}, errors.INVALID_JSON),
        (b"bytes", errors.INVALID_JSON),
    ],
)
def test_what_is_no_value(value: Any, code: str) -> None:
    with pytest.raises(ValueRejected) as caught:
        canonical(value)
    assert caught.value.code == code


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_depth_at_the_limit_and_one_over() -> None:
    canonical(nested(limits.DEPTH_MAX))
    with pytest.raises(ValueRejected) as caught:
        canonical(nested(limits.DEPTH_MAX + 1))
    assert caught.value.code == errors.TOO_DEEP


def test_true_is_not_one() -> None:
    assert canonical(True) != canonical(1) == canonical(1.0)
    assert not is_number(True)


@given(JSON)
def test_canonical_is_a_fixed_point_and_keeps_the_value(value: Any) -> None:
    data = canonical(value)
    assert canonical(decode_value(data)) == data
    assert json.loads(data) == value


@given(JSON, JSON)
def test_equality_is_equality_of_bytes(left: Any, right: Any) -> None:
    if canonical(left) == canonical(right):
        assert left == right


@given(NUMBERS)
def test_canonical_numbers_keep_their_amount(number: float) -> None:
    result = canonical_number(number)
    assert result == number
    assert canonical(number) == canonical(result)


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 9)))
def test_keys_are_sorted_by_code_point(value: dict[str, int]) -> None:
    assert list(decode_value(canonical(value))) == sorted(value)
