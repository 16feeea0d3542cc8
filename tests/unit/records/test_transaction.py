"""Decoding of records: what is a transaction, which code the rest gets, and that nothing raises."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from streamydb import limits
from streamydb.errors import ValueRejected
from streamydb.records import (
    Add,
    Check,
    Marker,
    Put,
    Rejection,
    Transaction,
    decode,
    decode_marker,
    encode_marker,
    keys,
    rejection,
)
from streamydb.records.values import deeper_than, outermost_field
from tests.support.generators import JSON, PAYLOADS, TRANSACTIONS, as_bytes, damaged, mutated
from tests.support.seeds import seeds


def one(update: str) -> bytes:
    return b'{"id":"t","updates":[' + update.encode() + b"]}"


def put(value: str) -> bytes:
    return one('{"op":"put","key":"k","value":' + value + "}")


BAD: list[tuple[bytes | None, str, str | None]] = [
    (None, "null-value", None),
    (b"", "invalid-json", None),
    (b"{", "invalid-json", None),
    (b'{"id":"t"} x', "invalid-json", None),
    (b'\xef\xbb\xbf{"id":"t"}', "invalid-json", None),
    (b'{"id":"t\xff"}', "invalid-json", None),
    (b'{"id":"t","reads":["\xed\xa0\x80"]}', "invalid-json", None),
    (b'{"id":"t","reads":["\\ud800"]}', "invalid-json", None),
    (b'{"id":"t","reads":["\\udc00\\ud800"]}', "invalid-json", None),
    (put("NaN"), "invalid-json", None),
    (put("-Infinity"), "invalid-json", None),
    (put("01"), "invalid-json", None),
    (b"null", "invalid-transaction", None),
    (b"[]", "invalid-transaction", None),
    (b"1e400", "invalid-transaction", None),
    (b'{"id":"t","unknown":1}', "invalid-transaction", "t"),
    (b'{"id":"t","asserts":[]}', "invalid-transaction", "t"),
    (b'{"id":"t","updates":null}', "invalid-transaction", "t"),
    (b'{"id":"t","call":null}', "invalid-transaction", "t"),
    (one('{"op":"put","key":"k"}'), "invalid-transaction", "t"),
    (one('{"op":"what","key":"k"}'), "invalid-transaction", "t"),
    (one('{"key":"k","value":1}'), "invalid-transaction", "t"),
    (one('{"op":"delete","key":"k","value":1}'), "invalid-transaction", "t"),
    (one('{"op":"add","key":"k","by":true}'), "invalid-transaction", "t"),
    (one('{"op":"add","key":"k","by":"1"}'), "invalid-transaction", "t"),
    (one('{"op":"add","key":"k","by":1,"min":null}'), "invalid-transaction", "t"),
    (one('{"op":"max","key":"k","value":"1"}'), "invalid-transaction", "t"),
    (b'{"id":"t","checks":[{"key":"k"}]}', "invalid-transaction", "t"),
    (b'{"id":"t","checks":[{"eq":1}]}', "invalid-transaction", "t"),
    (b'{"id":"t","checks":[{"key":"k","version":-1}]}', "invalid-transaction", "t"),
    (b'{"id":"t","checks":[{"key":"k","version":1.0}]}', "invalid-transaction", "t"),
    (b'{"id":"t","checks":[{"key":"k","version":true}]}', "invalid-transaction", "t"),
    (b'{"id":"t","checks":[{"key":"k","exists":1}]}', "invalid-transaction", "t"),
    (b'{"id":"t","checks":[{"key":"k","lt":null}]}', "invalid-transaction", "t"),
    (b'{"id":"t","checks":[{"key":"k","lt":[1]}]}', "invalid-transaction", "t"),
    (b'{"id":"t","checks":[{"range":{"prefix":"k"}}]}', "invalid-transaction", "t"),
    (b'{"id":"t","checks":[{"range":{},"count":1}]}', "invalid-transaction", "t"),
    (b'{"id":"t","checks":[{"range":{"start":"k"},"count":1}]}', "invalid-transaction", "t"),
    (
        b'{"id":"t","checks":[{"range":{"prefix":"k","end":"l"},"count":1}]}',
        "invalid-transaction",
        "t",
    ),
    (b'{"id":"t","checks":[{"range":{"prefix":"k"},"eq":1}]}', "invalid-transaction", "t"),
    (b'{"id":"t","checks":[{"range":{"prefix":"k"},"count":-1}]}', "invalid-transaction", "t"),
    (b'{"id":"t","checks":[{"range":{"prefix":"k"},"count":1.0}]}', "invalid-transaction", "t"),
    (b'{"id":"t","checks":[{"key":"k","count":1}]}', "invalid-transaction", "t"),
    (b'{"id":"t","checks":[{"key":"k","exists":true,"version_le":1}]}', "invalid-transaction", "t"),
    (
        b'{"id":"t","checks":[{"key":"k","range":{"prefix":"k"},"count":1}]}',
        "invalid-transaction",
        "t",
    ),
    (b'{"id":"t","reads":[{"range":{"prefix":"k","start":"k"}}]}', "invalid-transaction", "t"),
    (b'{"id":"t","reads":[{"range":{"prefix":"k"},"count":1}]}', "invalid-transaction", "t"),
    (b'{"id":"t","reads":[{"range":{"prefix":""}}]}', "invalid-key", "t"),
    (b'{"id":"t","reads":[{"range":{"start":"a","end":7}}]}', "invalid-key", "t"),
    (b'{"id":"t","reads":[{"prefix":"a"}]}', "invalid-key", "t"),
    (
        b'{"id":"t","checks":[{"range":{"prefix":"k"},"count":9223372036854775808}]}',
        "number-range",
        "t",
    ),
    (b"{}", "invalid-id", None),
    (b'{"id":7}', "invalid-id", None),
    (b'{"id":null}', "invalid-id", None),
    (b'{"id":""}', "invalid-id", None),
    (b'{"id":"a\\u001fb"}', "invalid-id", None),
    (b'{"id":"t","reads":[""]}', "invalid-key", "t"),
    (b'{"id":"t","reads":[1]}', "invalid-key", "t"),
    (b'{"id":"t","asserts":{"":1}}', "invalid-key", "t"),
    (one('{"op":"delete","key":null}'), "invalid-key", "t"),
    (put("null"), "null-value", "t"),
    (put("9223372036854775808"), "number-range", "t"),
    (put('{"a":[-9223372036854775809]}'), "number-range", "t"),
    (put("1e400"), "number-range", "t"),
    (put("[-1e400]"), "number-range", "t"),
    (put("1" * 5000), "number-range", "t"),
    (one('{"op":"add","key":"k","by":18446744073709551616}'), "number-range", "t"),
    (one('{"op":"add","key":"k","by":1,"max":1e999}'), "number-range", "t"),
    (b'{"id":"t","asserts":{"k":[99999999999999999999]}}', "number-range", "t"),
    (b'{"id":"t","checks":[{"key":"k","ge":9223372036854775808}]}', "number-range", "t"),
    (b'{"id":"t","checks":[{"key":"k","version":9223372036854775808}]}', "number-range", "t"),
    (one('{"op":"delete","key":"k"},{"op":"put","key":"k","value":1}'), "duplicate-update", "t"),
    (one(",".join(f'{{"op":"delete","key":"{key}"}}' for key in "abca")), "duplicate-update", "t"),
    (b'{"id":"t","call":{"procedure":"p","args":{},"keys":["k"]}}', "invalid-transaction", "t"),
    (b'{"marker":-1,"partitions":1,"sequencer":"s"}', "invalid-transaction", None),
    (b'{"marker":9007199254740992,"partitions":1,"sequencer":"s"}', "invalid-transaction", None),
    (b'{"marker":1,"partitions":1}', "invalid-transaction", None),
    (b'{"marker":1,"partitions":0,"sequencer":"s"}', "invalid-transaction", None),
    (b'{"marker":1,"partitions":1,"sequencer":"s","id":"t"}', "invalid-transaction", "t"),
]


@pytest.mark.parametrize(("raw", "code", "name"), BAD)
def test_reason_codes(raw: bytes | None, code: str, name: str | None) -> None:
    assert decode(raw) == Rejection(code, name)


FIRST_FAULT = [
    (b'{"id":"","reads":[""],"x":1}', "invalid-transaction"),
    (b'{"id":"","reads":[""]}', "invalid-id"),
    (b'{"id":"t","reads":[""],"asserts":{"a":1e400}}', "invalid-key"),
    (one('{"op":"put","key":"k","value":null},{"op":"put","key":"k","value":1e400}'), "null-value"),
    (one('{"op":"put","key":"k","value":1e400},{"op":"delete","key":"k"}'), "number-range"),
    (b'{"id":"t","asserts":{"a":1e400},"updates":[} ', "invalid-json"),
]


@pytest.mark.parametrize(("raw", "code"), FIRST_FAULT)
def test_the_first_fault_in_the_documented_order_counts(raw: bytes, code: str) -> None:
    found = decode(raw)
    assert isinstance(found, Rejection)
    assert found.code == code


def code_of(raw: bytes) -> str | None:
    """The reason code of a rejected record, None for a valid transaction."""
    found = decode(raw)
    return found.code if isinstance(found, Rejection) else None


def sized(length: int, *, prefix: bytes = b'{"id":"t"') -> bytes:
    return prefix + b" " * (length - len(prefix) - 1) + b"}"


def with_keys(count: int, *, repeated: bool = False) -> bytes:
    names = [f"k{number}" for number in range(count)]
    return as_bytes({"id": "t", "reads": names + names[: 5 * repeated]})


def with_depth(depth: int) -> bytes:
    """Three levels are the transaction's, its updates' and the update's."""
    return put("[" * (depth - 3) + "]" * (depth - 3))


N_AND_ONE_OVER: dict[str, tuple[Callable[[int], bytes], int, str]] = {
    "id": (lambda n: as_bytes({"id": "x" * n}), limits.ID_BYTES_MAX, "invalid-id"),
    "id in bytes": (
        lambda n: json.dumps({"id": "é" * 60 + "x" * (n - 120)}, ensure_ascii=False).encode(),
        limits.ID_BYTES_MAX,
        "invalid-id",
    ),
    "id with escapes": (
        lambda n: as_bytes({"id": "é" * 60 + "x" * (n - 120)}),
        limits.ID_BYTES_MAX,
        "invalid-id",
    ),
    "key": (lambda n: as_bytes({"id": "t", "reads": ["x" * n]}), 480, "invalid-key"),
    "key in bytes": (
        lambda n: as_bytes({"id": "t", "asserts": {"😀" * 119 + "x" * (n - 476): 1}}),
        limits.KEY_BYTES_MAX,
        "invalid-key",
    ),
    "value": (lambda n: put('"' + "x" * (n - 2) + '"'), limits.VALUE_BYTES_MAX, "value-too-large"),
    "expected value": (
        lambda n: as_bytes({"id": "t", "asserts": {"k": "x" * (n - 2)}}),
        limits.VALUE_BYTES_MAX,
        "value-too-large",
    ),
    "keys": (with_keys, limits.KEYS_PER_TRANSACTION_MAX, "too-many-keys"),
    "transaction": (sized, limits.TRANSACTION_BYTES_MAX, "transaction-too-large"),
    "depth": (with_depth, limits.DEPTH_MAX, "too-deep"),
}


@pytest.mark.fault(13, "every limit at n and n+1", "accepted, rejected")
@pytest.mark.parametrize("name", N_AND_ONE_OVER)
def test_limits_at_n_and_one_over(name: str) -> None:
    make, limit, code = N_AND_ONE_OVER[name]
    assert code_of(make(limit)) is None
    assert code_of(make(limit + 1)) == code


def test_a_limit_on_keys_counts_different_keys() -> None:
    assert code_of(with_keys(limits.KEYS_PER_TRANSACTION_MAX, repeated=True)) is None


def test_a_value_is_measured_in_canonical_form() -> None:
    items = ",".join(["1.0"] * 131_071)
    assert len(items) > limits.VALUE_BYTES_MAX
    assert code_of(put(f"[ {items} ]")) is None
    assert code_of(put("[" + ",".join(["1e15"] * 20_000) + "]")) == "value-too-large"


def test_limits_are_published_with_descriptions() -> None:
    assert limits.LIMITS.keys() == limits.DESCRIPTIONS.keys()
    numbers = {name for name, value in vars(limits).items() if isinstance(value, int)}
    assert {name for name in numbers if name.isupper()} == limits.LIMITS.keys()


def test_the_id_of_an_oversize_or_too_deep_record_is_found() -> None:
    assert decode(sized(limits.TRANSACTION_BYTES_MAX + 1)) == Rejection(
        "transaction-too-large", "t"
    )
    assert decode(with_depth(65)) == Rejection("too-deep", "t")
    assert decode(b"[" * 100_000) == Rejection("too-deep", None)
    assert decode(b'{"id":"t","x":' + b'{"id":' * 100_000) == Rejection("too-deep", None)


def test_brackets_in_strings_are_no_depth() -> None:
    assert code_of(put('"' + "[{" * 200 + '"')) is None
    assert code_of(put('"\\"' + "[{" * 200 + '\\\\"')) is None
    assert code_of(put('["\\\\' + '",' + "[" * 61 + "1" + "]" * 61 + "]")) == "too-deep"


@pytest.mark.parametrize("raw", [b'"' + b'\\"' * 400_000, b"[{" * 400_000, b'"' * 800_000])
def test_scans_take_linear_time(raw: bytes) -> None:
    deeper_than(b"[" * 65 + raw, limits.DEPTH_MAX)
    assert outermost_field(raw, "id") is None


@given(st.text("[]{}1,", max_size=40), st.integers(0, 4))
def test_a_depth_is_the_most_brackets_that_are_open_at_once(raw: str, limit: int) -> None:
    depths = [raw[:n].count("[") + raw[:n].count("{") - raw[:n].count("]") - raw[:n].count("}")
              for n in range(len(raw) + 1)]  # fmt: skip
    assert deeper_than(f'"[[[[["{raw}'.encode(), limit) == (max(depths) > limit)


def test_values_and_numbers_are_canonical() -> None:
    found = decode(
        b'{ "id" : "t", "asserts":{"a":1.0,"n":null},'
        b'"checks":[{"key":"a","ge":2.0,"eq":{"b":1.0,"a":[ ]}},{"key":"b","ne":null,"lt":"x"}],'
        b'"updates":[{"key":"x","by":-0.0,"max":5.0,"op":"add"},'
        b'{"op":"put","key":"y","value":"\\u00e9"},{"op":"max","key":"z","value":3.0},'
        b'{"op":"append","key":"l","value":null}]}'
    )
    assert isinstance(found, Transaction)
    assert found.asserts == {"a": b"1", "n": None}
    assert found.checks == (Check("a", ge=2, eq=b'{"a":[],"b":1}'), Check("b", ne=None, lt="x"))
    add, put_y, largest, appended = found.updates
    assert isinstance(add, Add)
    assert (add.by, add.max, add.min) == (0, 5, UNSET)
    assert [type(add.by), type(add.max)] == [int, int]
    assert put_y == Put("y", '"é"'.encode())
    assert getattr(largest, "value", None) == 3
    assert getattr(appended, "value", None) == b"null"


def test_the_last_of_equal_fields_counts() -> None:
    found = decode(b'{"id":"a","id":"b","asserts":{"k":1,"k":2}}')
    assert isinstance(found, Transaction)
    assert (found.id, found.asserts) == ("b", {"k": b"2"})


def test_keys_in_first_touch_order() -> None:
    found = decode(
        b'{"id":"t","updates":[{"op":"delete","key":"r"},{"op":"next_id","key":"n"}],'
        b'"reads":["r","c","r"],"checks":[{"key":"c","exists":true}],"asserts":{"a":1}}'
    )
    assert isinstance(found, Transaction)
    assert list(keys(found).items()) == [("a", False), ("c", False), ("r", True), ("n", True)]


def test_markers() -> None:
    marker = Marker(2**53 - 1, 3, "s")
    assert decode(encode_marker(marker)) == marker
    spaced = b'{ "sequencer":"s", "partitions": 3, "\\u006darker": 9007199254740991 }'
    assert decode(spaced) == marker == decode_marker(spaced)
    too_long = encode_marker(Marker(1, 1, "s" * limits.TRANSACTION_BYTES_MAX))
    assert decode_marker(too_long) is None
    assert code_of(too_long) == "transaction-too-large"


@settings(max_examples=300)
@given(TRANSACTIONS)
def test_valid_transactions_are_accepted(transaction: dict[str, Any]) -> None:
    raw = as_bytes(transaction)
    found = decode(raw)
    assert isinstance(found, Transaction)
    assert found.id == transaction["id"]
    assert len(found.updates) == len(transaction.get("updates", []))
    assert decode(json.dumps(transaction, ensure_ascii=False).encode()) == found


ANYTHING = st.one_of(
    st.binary(max_size=200),
    st.text(max_size=50).map(lambda text: text.encode("utf-8", "surrogatepass")),
    JSON.map(as_bytes),
    mutated().map(as_bytes),
    damaged(),
    PAYLOADS,
)


@pytest.mark.fault(12, "arbitrary bytes (Hypothesis)", "rejected, never raised")
@settings(max_examples=seeds(500, 250))
@given(ANYTHING)
def test_never_raises_and_both_decoders_agree(raw: bytes | None) -> None:
    found = decode(raw)
    if isinstance(found, Transaction):
        rejection._check(json.loads(raw or b""))
        assert decode_marker(raw) is None
    elif isinstance(found, Marker):
        assert decode_marker(raw) == found
    else:
        assert found.id is None or rejection.valid_id(found.id) == found.id
        assert decode_marker(raw) is None


@settings(max_examples=500)
@given(st.one_of(mutated(), JSON))
def test_what_has_no_fault_is_accepted(record: Any) -> None:
    """The other way round: the typed decoder refuses nothing in which no fault can be named."""
    assert code_of(as_bytes(record)) == named_fault(record)


def named_fault(record: Any) -> str | None:
    """The code that the plain checks give a decoded record, None when they find no fault."""
    try:
        rejection._check(record)
    except ValueRejected as fault:
        return fault.code
    return None
