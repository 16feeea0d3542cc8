"""Procedures that scan ranges: what they see, what they must declare, which records are valid."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamydb import limits
from streamydb.facade.auth import Caller
from streamydb.facade.payloads import authorise
from streamydb.facade.problems import ProblemError
from streamydb.procedures.core import declared_keys
from streamydb.procedures.declare import DeclaredKeys, range_of
from streamydb.procedures.view import DeclaredRanges, named_bounds
from streamydb.records import Rejection, Transaction, decode
from streamydb.records.ranges import Range
from tests.support.procedures import call, module_of, returned

A, AB = Range(prefix="a/"), Range(start="a/1", end="b")
STATE = {"a/1": 1, "a/2": {"n": 2}, "a/é": "e", "b": 4, "$windows/m.w": 5}


def scanned(body: str, *ranges: Range, keys: tuple[str, ...] = ()) -> Any:
    module = module_of(f"def f(db):\n    {body}\n")
    return call(module, "f", {}, STATE, keys, (), ranges)


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("return db.scan('a/')", [["a/1", 1], ["a/2", {"n": 2}], ["a/é", "e"]]),
        ("return db.scan(start='a/1', end='a/2')", [["a/1", 1]]),
        ("return [db.count('a/'), db.count('a/2'), db.count('a/9')]", [3, 1, 0]),
        ("db.put('a/15', 9); db.delete('a/2'); return db.scan('a/')",
         [["a/1", 1], ["a/15", 9], ["a/é", "e"]]),
        ("db.add('a/1', 5); return [value for key, value in db.scan('a/1')]", [6]),
        ("return db.scan(start='a/9', end='a/1')", []),
    ],
)  # fmt: skip
def test_a_scan_sees_the_range_with_own_writes(body: str, value: Any) -> None:
    assert returned(scanned(body, A, keys=("a/1", "a/15", "a/2"))) == value


@pytest.mark.parametrize(
    ("body", "code", "reason"),
    [
        ("db.scan('b')", "undeclared-key", "b"),
        ("db.scan(start='a', end='a/1')", "undeclared-key", "a"),
        ("db.scan('')", "undeclared-key", ""),
        ("db.scan('\\ud800')", "undeclared-key", "?"),
        ("db.get('a/1')", "undeclared-key", "a/1"),
        ("db.scan()", "procedure-error", "TypeError"),
        ("db.scan(3)", "procedure-error", "TypeError"),
        ("db.count('a/', end='b')", "procedure-error", "TypeError"),
        ("db.count(start='a/')", "procedure-error", "TypeError"),
        ("db.put('a/3', 1)", "undeclared-key", "a/3"),
    ],
)
def test_what_was_not_declared_or_is_no_range(body: str, code: str, reason: str) -> None:
    made = scanned(body, A)
    assert (made.code, made.reason) == (code, reason)


def test_keys_of_workflows_are_left_out() -> None:
    assert returned(scanned("return [db.scan('$'), db.count('$')]", Range(prefix="$"))) == [[], 0]


def test_scans_are_charged() -> None:
    body = "return sum([db.count('a/') for n in range({})])"
    few, many = (scanned(body.format(n), A).steps for n in (10, 1_000))
    assert many - few > 3 * 990
    assert scanned(body.format(99_999), A).code == "budget-exceeded"


def test_the_widest_declared_range_is_found() -> None:
    wide, inside = Range(start="a", end="m"), Range(start="b", end="c")
    found = DeclaredRanges([inside, wide, Range(prefix="x"), wide])
    for bounds, around in (
        ((b"b", b"c"), wide), ((b"c", b"d"), wide), ((b"a", b"m"), wide), ((b"x1", b"x2"), "x"),
        ((b"a", b"n"), None), ((b"A", b"b"), None), ((b"y", b"z"), None),
    ):  # fmt: skip
        expected = Range(prefix="x") if around == "x" else around
        assert found.around(bounds) == (expected and expected.bounds())  # type: ignore[union-attr]
    assert DeclaredRanges([]).around((b"a", b"b")) is None
    for named in (A, AB, Range(prefix="é"), Range(prefix="\U0010ffff")):
        assert Range.of(named.bounds()) == named
        texts = (named.prefix or None, named.start or None, named.end or None)
        assert named_bounds(*texts) == named.bounds()


def test_key_functions_give_ranges() -> None:
    module = module_of("""
        from streamydb.procedures import procedure

        @procedure(keys=lambda args: {"keys": ["n"], "ranges": args["named"]})
        def f(db, named):
            return 1
    """)
    told = ["a/", {"prefix": "a/"}, {"start": "a/1", "end": "b"}]
    assert declared_keys(module, "f", {"named": told}) == DeclaredKeys(["n"], [], [A, AB])
    wrong: list[Any]
    for wrong in ([3], [{}], [{"prefix": 3}], [{"start": "a"}], [["a"]]):
        with pytest.raises(ValueError, match="TypeError"):
            declared_keys(module, "f", {"named": wrong})
    assert range_of(A) is A


def record(**parts: Any) -> bytes:
    return json.dumps({"id": "t", "call": {"procedure": "m.f", **parts}}).encode()


def test_records_of_calls_with_ranges() -> None:
    named = [{"prefix": "a/"}, {"start": "a/1", "end": "b"}]
    made = decode(record(ranges=named))
    assert isinstance(made, Transaction)
    assert made.ranges == {A.bounds(): True, AB.bounds(): True}
    assert made.read_ranges == []
    for code, ranges in (
        ("invalid-transaction", [{}]), ("invalid-transaction", ["a/"]),
        ("invalid-transaction", [{"prefix": "a", "end": "b"}]), ("invalid-transaction", {}),
        ("invalid-key", [{"prefix": ""}]), ("invalid-key", [{"prefix": "k" * 1_025}]),
        ("too-many-keys", [{"prefix": f"{n}"} for n in range(limits.KEYS_PER_TRANSACTION_MAX)]),
    ):  # fmt: skip
        assert decode(record(ranges=ranges)) == Rejection(code, "t")


def test_a_token_must_be_allowed_to_read_a_range() -> None:
    made = decode(record(ranges=[{"prefix": "a/"}]))
    assert isinstance(made, Transaction)
    authorise(made, Caller("c", ("a",), ()))
    with pytest.raises(ProblemError):
        authorise(made, Caller("c", ("a/1",), ()))
