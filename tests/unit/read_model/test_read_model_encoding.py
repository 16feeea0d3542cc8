"""The order of bytes in the store is the order of keys, then the newest version first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamydb.errors import INVALID_KEY, ValueRejected
from streamydb.limits import KEY_BYTES_MAX
from streamydb.read_model.encoding import (
    key_bytes,
    key_text,
    pack_version,
    seq_of,
    stored,
    unpack_version,
    version_key,
)

KEYS = st.one_of(
    st.text(max_size=20),
    st.text("\x00\x01aé\U0010ffff", max_size=6),
    st.sampled_from(["\x00" * 480, "é" * 240, "\U0010ffff" * 120, "a" * 480]),
)
SEQS = st.one_of(st.integers(0, 3), st.integers(0, 2**63 - 1))


@given(KEYS, SEQS, KEYS, SEQS)
def test_order_is_by_key_and_then_newest_first(a: str, m: int, b: str, n: int) -> None:
    first, second = version_key(stored(key_bytes(a)), m), version_key(stored(key_bytes(b)), n)
    assert (first < second) == ((a.encode(), -m) < (b.encode(), -n))
    assert (first == second) == ((a, m) == (b, n))


@given(KEYS, SEQS)
def test_keys_and_seqs_come_back_and_fit_in_lmdb(key: str, seq: int) -> None:
    version = version_key(stored(key_bytes(key)), seq)
    assert key_text(version[:-9]) == key
    assert seq_of(version) == seq
    assert len(version) <= 511
    assert b"\x00" not in version[:-9]


@given(st.integers(0, 2**62), st.binary(max_size=128), st.binary(max_size=50))
def test_versions_come_back(ts_ms: int, txn_id: bytes, value: bytes) -> None:
    assert unpack_version(pack_version(ts_ms, txn_id, value)) == (ts_ms, txn_id, value)


def test_what_can_be_no_key_is_refused() -> None:
    assert len(key_bytes("k" * KEY_BYTES_MAX)) == KEY_BYTES_MAX
    for key in ("k" * (KEY_BYTES_MAX + 1), "é" * 241, "\ud800"):
        with pytest.raises(ValueRejected) as caught:
            key_bytes(key)
        assert caught.value.code == INVALID_KEY
