"""Rows: their bytes and their order; and the kernels that sort, merge and thin them out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamydb.errors import INVALID_KEY, ValueRejected
from streamydb.limits import KEY_BYTES_MAX
from streamydb.read_model.merging import distinct, kept, merged, rows_of, sorted_rows, written
from streamydb.read_model.rows import (
    Row,
    compare_rows,
    expires_of,
    key_bytes,
    pack_row,
    ts_of,
    unpack_row,
)
from tests.support.read_model import Held, held

KEYS = st.one_of(
    st.text(max_size=20),
    st.text("\x00\x01aé\U0010ffff", max_size=6),
    st.text("ab", min_size=6, max_size=18),
    st.sampled_from(["\x00" * 480, "é" * 240, "\U0010ffff" * 120, "a" * 480]),
).map(str.encode)
SEQS = st.one_of(st.integers(0, 3), st.integers(0, 2**62))
ROWS = st.builds(
    Row, KEYS, SEQS, st.integers(0, 2**62), st.binary(max_size=128),
    st.one_of(st.just(b""), st.binary(max_size=50)),
    st.one_of(st.just(0), st.integers(1, 2**63 - 1)),
)  # fmt: skip


def name(row: Row) -> tuple[bytes, int]:
    """The place of a row in the order."""
    return row.key, -row.seq


def distinct_rows(rows: list[Row]) -> list[Row]:
    """One of each name, in their order."""
    return [found for _, found in sorted({name(row): row for row in rows}.items())]


@given(ROWS)
def test_rows_come_back(row: Row) -> None:
    data = pack_row(*row)
    assert unpack_row(data) == row
    texts = len(row.key) + len(row.txn_id) + len(row.value)
    assert len(data) == 24 + texts + (8 if row.expires_ms else 0), "without an end as before"
    memory = held([row])
    (placed,) = memory.rows.tolist()
    assert (ts_of(placed), expires_of(placed)) == (row.ts_ms, row.expires_ms)


@given(ROWS, ROWS)
def test_order_is_by_key_and_then_newest_first(one: Row, other: Row) -> None:
    both = held([one, other])
    left, right = both.rows.tolist()
    expected = (name(one) > name(other)) - (name(one) < name(other))
    assert compare_rows(left, right) == expected
    assert compare_rows(right, left) == -expected


@given(st.lists(ROWS, max_size=40), st.lists(KEYS, min_size=1, max_size=3), st.data())
def test_rows_are_sorted_and_equal_ones_stay_in_their_order(
    rows: list[Row], keys: list[bytes], data: st.DataObject
) -> None:
    rows = [
        row._replace(key=data.draw(st.sampled_from(keys))) if data.draw(st.booleans()) else row
        for row in rows
    ]
    given_rows = held(rows)
    found = sorted_rows(given_rows.rows)
    assert given_rows.read(found) == sorted(rows, key=name)


@given(st.lists(ROWS, max_size=20), st.lists(st.integers(0, 19), max_size=20), st.data())
def test_repetitions_are_left_out_and_contradictions_found(
    rows: list[Row], again: list[int], data: st.DataObject
) -> None:
    rows = distinct_rows(rows)
    repeated = [*rows, *(rows[i] for i in again if i < len(rows))]
    given_rows = held(repeated)
    found, wrong = distinct(sorted_rows(given_rows.rows))
    assert (given_rows.read(found), wrong) == (rows, -1)
    if rows:
        others = [
            rows[0]._replace(value=rows[0].value + b"1"),
            rows[0]._replace(expires_ms=rows[0].expires_ms ^ 1),
        ]
        other = data.draw(st.sampled_from(others))
        contrary = held([*repeated, other])
        _, wrong = distinct(sorted_rows(contrary.rows))
        assert name(contrary.read([wrong])[0]) == name(other)


@given(st.lists(ROWS, max_size=30), st.lists(ROWS, max_size=30))
def test_two_sorted_arrays_become_one(one: list[Row], other: list[Row]) -> None:
    left, right = held(distinct_rows(one)), held(distinct_rows(other))
    assert left.read(merged(left.rows, right.rows)) == sorted(
        distinct_rows(one) + distinct_rows(other), key=name
    )


@given(st.lists(ROWS, max_size=30), st.integers(0, 4), st.booleans())
def test_what_no_snapshot_shows_is_left_out(
    rows: list[Row],
    horizon: int,
    bottom: bool,  # noqa: FBT001 - drawn
) -> None:
    rows = distinct_rows([row._replace(key=row.key[:1] or b"k", seq=row.seq % 6) for row in rows])
    expected = []
    for row in rows:
        base = max((r.seq for r in rows if r.key == row.key and r.seq <= horizon), default=-1)
        if row.seq > horizon or (row.seq == base and (row.value or not bottom)):
            expected.append(row)
    given_rows = held(rows)
    assert given_rows.read(kept(given_rows.rows, horizon, bottom)) == expected


@given(st.lists(ROWS, max_size=30), st.integers(1, 3_000))
def test_parts_hold_what_is_written(rows: list[Row], part_bytes: int) -> None:
    rows = distinct_rows(rows)
    given_rows = held(rows)
    buffer, parts = written(given_rows.rows, part_bytes)
    places = parts["start"] + buffer.ctypes.data
    found = rows_of(places, parts["length"].copy(), parts["rows"].copy())
    assert Held([buffer], found).read(found) == rows
    assert parts["rows"].sum() == len(rows)
    extra = sum(
        not row.value or (i > 0 and rows[i - 1].key == row.key) for i, row in enumerate(rows)
    )
    assert parts["extra"].sum() == extra
    largest = max([len(pack_row(*row)) for row in rows], default=0)
    assert all(part["length"] <= part_bytes + largest + 12 for part in parts)


def test_what_can_be_no_key_is_refused() -> None:
    assert len(key_bytes("k" * KEY_BYTES_MAX)) == KEY_BYTES_MAX
    for key in ("k" * (KEY_BYTES_MAX + 1), "é" * 241, "\ud800"):
        with pytest.raises(ValueRejected) as caught:
            key_bytes(key)
        assert caught.value.code == INVALID_KEY
