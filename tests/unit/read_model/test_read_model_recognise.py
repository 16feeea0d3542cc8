"""The kernel that reads changes and the reader of single records take the same and make the
same.
"""

from __future__ import annotations

from typing import Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw, UnsetType

from streamydb.errors import RecordError
from streamydb.frames.addresses import SPARE_BYTES, bytes_at
from streamydb.frames.table import Ragged
from streamydb.read_model.core import single_change
from streamydb.read_model.recognise import UNRECOGNISED, recognised
from streamydb.read_model.rows import row_bytes, unpack_row
from streamydb.records import Change, ChangeOrigin, ChangeTransaction, encode_change
from streamydb.records.formats import UNREADABLE

PLAIN = st.text(st.characters(min_codepoint=32, max_codepoint=126, exclude_characters='"\\'))
TEXTS = st.one_of(PLAIN, st.text(max_size=8))
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=6,
).map(msgspec.json.encode)
NUMBERS = st.one_of(st.integers(-1, 3), st.integers(0, 2**63 - 1))
CHANGES = st.builds(
    Change, st.sampled_from("cud"), VALUES.map(Raw), VALUES.map(Raw), NUMBERS,
    st.builds(
        ChangeOrigin, st.just("streamydb"), st.sampled_from(["bank", "bank", "other"]),
        st.integers(0, 3), NUMBERS, NUMBERS,
    ),
    st.builds(ChangeTransaction, TEXTS, st.integers(1, 3), st.integers(1, 3)),
    st.one_of(st.just(UNSET), st.sampled_from([0, -1, 2**63]), NUMBERS),
)  # fmt: skip
KEYS = st.one_of(PLAIN.map(str.encode), TEXTS.map(str.encode), st.binary(max_size=9))


def spared(*texts: bytes) -> Ragged:
    """Texts with bytes to spare behind them."""
    return Ragged.of([*texts, bytes(SPARE_BYTES)]).part(0, len(texts))


def fast(key: bytes, value: bytes) -> bytes | None:
    """The row that the kernel makes; None: it leaves it."""
    buffer, rows = recognised(spared(b"x", key), spared(b"", value), "bank")
    assert len(buffer) > 0
    assert rows[0] == UNRECOGNISED
    return None if rows[1] == UNRECOGNISED else bytes_at(int(rows[1]), int(row_bytes(rows[1])))


def slow(key: bytes, value: bytes) -> bytes | None:
    """The row that the reader of single records makes; None: it refuses it."""
    try:
        return single_change(key, value, "bank")
    except (*UNREADABLE, ValueError, RecordError):
        return None


@given(KEYS, CHANGES)
def test_what_the_kernel_takes_is_what_a_single_record_gives(key: bytes, change: Change) -> None:
    value = encode_change(change)
    found = fast(key, value)
    assert found is None or found == slow(key, value)


@given(CHANGES, st.integers(0, 250), st.integers(0, 3), st.binary(max_size=3))
def test_what_is_damaged_is_taken_only_if_a_single_record_is(
    change: Change, at: int, removed: int, put: bytes
) -> None:
    value = encode_change(change)
    value = value[:at] + put + value[at + removed :]
    found = fast(b"k", value)
    assert found is None or found == slow(b"k", value)


@given(VALUES, st.sampled_from([UNSET, 1, 1_700_000_000_000]))
def test_plain_values_are_taken(value: bytes, expires_ms: int | UnsetType) -> None:
    if value == b"null":
        expires_ms = UNSET
    change = Change(
        "d" if value == b"null" else "u", Raw(value), Raw(value), 5,
        ChangeOrigin("streamydb", "bank", 0, 7, 9), ChangeTransaction("t-1", 1, 2), expires_ms,
    )  # fmt: skip
    found = fast(b"acct/1", encode_change(change))
    plain = all(32 <= byte < 127 for byte in value) and b"\\u" not in value
    assert (found is not None) == plain
    assert found is None or found == slow(b"acct/1", encode_change(change))
    assert found is None or unpack_row(found).expires_ms == (expires_ms or 0)


@pytest.mark.parametrize(("op", "expires_ms"), [("d", 5), ("u", 0), ("u", -1), ("u", 2**63)])
def test_what_cannot_be_an_end_is_refused(op: Literal["d", "u"], expires_ms: int) -> None:
    after = Raw(b"null" if op == "d" else b"1")
    source, transaction = ChangeOrigin("streamydb", "bank", 0, 7, 9), ChangeTransaction("t", 1, 1)
    change = Change(op, Raw(b"1"), after, 5, source, transaction, expires_ms)
    assert fast(b"k", encode_change(change)) is None
    with pytest.raises(RecordError, match="its end is"):
        single_change(b"k", encode_change(change), "bank")


@pytest.mark.parametrize(
    "value",
    ["[1,]", "{", "[", "-", "01", "1.", "1e", "tru", "nulll", "[1 ]", '{"a"}', '{"a":}', "[}", "{]",
     "[,]", '{"a":1,}', '"', '"\\x"', "", "[[]", "{}}", "+1", ".5", "true1"],
)  # fmt: skip
def test_what_is_no_value_is_left(value: str) -> None:
    whole = encode_change(
        Change(
            "u", Raw(b"1"), Raw(b"@"), 5, ChangeOrigin("streamydb", "bank", 0, 7, 9),
            ChangeTransaction("t", 1, 2),
        )
    )  # fmt: skip
    record = whole.replace(b"@", value.encode())
    assert fast(b"k", record) is None
    assert slow(b"k", record) is None or value == "[1 ]"
