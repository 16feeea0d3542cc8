"""Ranges in the arguments of `streamydb txn`, and in what it prints."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from streamydb.cli.parts import PartError, TransactionOptions, range_check_of, transaction_of
from streamydb.cli.txn import _show
from streamydb.records import Transaction, decode, decode_result
from streamydb.verify.oracle.core import Oracle


@pytest.mark.parametrize(
    ("text", "check"),
    [
        ("order/ count<=9", {"range": {"prefix": "order/"}, "count_le": 9}),
        ("a b count >= 1", {"range": {"prefix": "a b"}, "count_ge": 1}),
        ("order/ count==2", {"range": {"prefix": "order/"}, "count": 2}),
        ("a..b version<=41", {"range": {"start": "a", "end": "b"}, "version_le": 41}),
        ("order/ exists", {"range": {"prefix": "order/"}, "exists": True}),
        ("a..b absent", {"range": {"start": "a", "end": "b"}, "exists": False}),
        ("..b count=0", {"range": {"prefix": "..b"}, "count": 0}),
    ],
)
def test_a_check_of_a_range(text: str, check: dict[str, Any]) -> None:
    assert range_check_of(text) == check
    made = transaction_of(
        TransactionOptions(check_range=[text], read_range=["order/", "a..b"], read=["k"])
    )
    ranges = [{"range": {"prefix": "order/"}}, {"range": {"start": "a", "end": "b"}}]
    assert made == {"checks": [check], "reads": ["k", *ranges]}
    assert isinstance(decode(msgspec.json.encode({"id": "t", **made})), Transaction)


@pytest.mark.parametrize("text", ["order/", "order/ count", "order/ version>=3", "o count<=x"])
def test_what_is_no_check_of_a_range(text: str) -> None:
    with pytest.raises(PartError, match="is not a check; write 'PREFIX count<=9'"):
        range_check_of(text)


def test_ranges_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    oracle = Oracle("db")
    for offset, parts in enumerate((
        TransactionOptions(put=["a/1=1", "a/2=2"]),
        TransactionOptions(read_range=["a/", "a/2..a/3"]),
        TransactionOptions(check_range=["a/ count<=1"], put=["a/3=3"]),
    )):  # fmt: skip
        raw = msgspec.json.encode({"id": str(offset), **transaction_of(parts)})
        result = decode_result(oracle.apply(raw, 0, offset, 7)[0].value or b"")
        _show(result, json=False)
    said = capsys.readouterr().out
    assert "  a/: 2 keys\n    a/1 = 1  (version 1)\n    a/2 = 2  (version 1)\n" in said
    assert "  a/2..a/3: 1 keys\n" in said
    assert "  range 0 on a/: 2 keys, version 1\n" in said


def test_what_did_not_commit_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    oracle = Oracle("db")
    rule = {"name": "positive", "prefix": "n/", "type": "number", "min": 0}
    for offset, given in enumerate((
        {"id": "t", **transaction_of(TransactionOptions(put=["a=1", "a=2"]))},
        {"id": "", "reads": ["a"]},
        {"id": "u", **transaction_of(TransactionOptions(check=["a exists"]))},
        {"id": "c", "constrain": {"declare": rule}},
        {"id": "v", **transaction_of(TransactionOptions(put=["n/a=-1"]))},
    )):  # fmt: skip
        _show(decode_result(oracle.apply(msgspec.json.encode(given), 0, offset, 7)[0].value or b""),
              json=False)  # fmt: skip
    twice, why, nameless, _, _, check, _, _, constraint = capsys.readouterr().out.splitlines()
    assert twice == "rejected duplicate-update  seq 1  id t"
    assert why == "  Two updates name the same key."
    assert nameless == "rejected invalid-id  seq 2"
    assert check == "  check 0 on a: value is null, version 0"
    assert constraint == "  constraint positive (min 0) on n/a: value is -1, version 0"


def test_what_ends_and_what_is_touched() -> None:
    made = transaction_of(
        TransactionOptions(put=["a=1"], add=["n=1"], append=["l=2"], touch=["t"], ttl_ms=9)
    )
    assert made["updates"] == [
        {"op": "put", "key": "a", "value": 1, "ttl_ms": 9}, {"op": "add", "key": "n", "by": 1},
        {"op": "append", "key": "l", "value": 2, "ttl_ms": 9},
        {"op": "touch", "key": "t", "ttl_ms": 9},
    ]  # fmt: skip
    assert isinstance(decode(msgspec.json.encode({"id": "t", **made})), Transaction)
    assert transaction_of(TransactionOptions(touch=["t"])) == {
        "updates": [{"op": "touch", "key": "t"}]
    }
    with pytest.raises(PartError, match="--ttl-ms belongs to --put, --append or --touch"):
        transaction_of(TransactionOptions(add=["n=1"], ttl_ms=9))
