"""Blocks: what is packed comes back, and nothing else is taken for a block."""

from __future__ import annotations

import random

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from streamydb.errors import InvariantViolation, RecordError
from streamydb.frames.encoding import narrow, pack, stored_bytes, unpack, widen
from streamydb.frames.protocol import FORMAT
from streamydb.frames.readers import TO_SHARD
from streamydb.frames.table import Array, ChildRows, ColumnTable, Ragged

DTYPES = (np.uint8, np.int32, np.int64, np.uint64, np.float64, np.bool_)


@given(st.sampled_from(DTYPES).flatmap(lambda d: hnp.arrays(d, st.integers(0, 80))))
@settings(max_examples=200)
def test_any_array_comes_back(array: npt.NDArray[np.generic]) -> None:
    header, arrays = unpack(pack({"x": array}, n=1, text="é", nothing=None))
    assert header == {"n": 1, "text": "é", "nothing": None}
    assert arrays["x"].dtype == array.dtype
    assert arrays["x"].tobytes() == array.tobytes()
    assert arrays["x"].flags.writeable


@pytest.mark.parametrize(
    ("array", "most"),
    [
        (np.full(1000, 7, np.int64), 0),
        (np.arange(5_000_000, 5_001_000), 0),
        (np.arange(1000) * 3 + np.arange(1000) % 2, 999),
        (np.arange(1000) % 200 - 100, 1000),
        (np.array([2**62, -(2**62)] * 50), 800),
        (np.array([-(2**63), 2**63 - 1] * 50), 800),
        (np.zeros(100, np.uint8), 0),
        (np.array([-(2**31), 2**31 - 1] * 50, np.int32), 400),
    ],
)
def test_numbers_are_stored_in_as_few_bytes_as_they_need(
    array: npt.NDArray[np.generic], most: int
) -> None:
    layout, data = narrow(array)
    assert stored_bytes(layout[1], layout[2], len(array)) == len(data) <= most
    found = widen(layout, len(array), data)
    assert found.dtype == array.dtype
    assert found.tolist() == array.tolist()


class Squares(ColumnTable, frozen=True):
    d: Array


class Numbers(ColumnTable, frozen=True):
    a: Array
    b: Array
    t: Ragged
    c: ChildRows[Squares]


def some_block() -> bytes:
    table = Numbers(
        np.arange(100),
        np.zeros(100, np.uint8),
        Ragged.of([b"x" * (i % 7) for i in range(100)]),
        ChildRows(np.ones(100, np.int64), Squares(np.arange(100, dtype=np.int32) ** 2)),
    )
    return pack(table.flatten(), kind="records", format=FORMAT)


def test_a_table_comes_back() -> None:
    table = Numbers.unflatten(unpack(some_block())[1])
    assert table.a.tolist() == list(range(100))
    assert table.t.tolist() == [b"x" * (i % 7) for i in range(100)]
    assert table.c.rows.d.tolist() == [i * i for i in range(100)]


@pytest.mark.parametrize("cut", [0, 1, 4, 7, 8, 20, 60, -1])
def test_a_cut_block_is_refused(cut: int) -> None:
    with pytest.raises(RecordError):
        unpack(some_block()[:cut])


def test_no_damage_does_anything_but_refuse() -> None:
    rng = random.Random(1)
    block = some_block()
    refused = 0
    for _ in range(3000):
        damaged = bytearray(block)
        for _ in range(rng.choice([1, 2, 8])):
            damaged[rng.randrange(min(len(damaged), 300))] = rng.randrange(256)
        try:
            unpack(bytes(damaged))
        except RecordError:
            refused += 1
    assert refused > 1000


@pytest.mark.parametrize(
    "layout",
    [
        ("<i8", "n", 0, 1, 0, 2**40),
        ("<i8", "d", 0, 1, 1, 2**40),
        ("<i8", "z", 1, 0, 0, 10),
        ("|O", "r", 8, 0, 0, 10),
        ("<i8", "n", 3, 0, 0, 10),
        ("<f8", "n", 0, 0, 0, 10),
        ("<i8", "n", 0, 2**70, 0, 40),
        ("<i8", "r", 0, 0, 0, 10),
        ("<i8", "n", 0, 0, 0, -1),
    ],
)
def test_hostile_layouts_are_refused(layout: tuple[str, str, int, int, int, int]) -> None:
    import msgspec

    dtype, codec, width, base, step, length = layout
    if base >= 2**64:
        head = b"\x92"
    else:
        names = [("x", length, dtype, codec, width, base, step)]
        head = msgspec.msgpack.encode(({"format": FORMAT}, names))
    block = b"SDB2" + len(head).to_bytes(4, "little") + head + bytes(80)
    with pytest.raises(RecordError):
        unpack(block)


@pytest.mark.fault(21, "a block of a newer format", "refused")
def test_a_newer_format_stops_everything() -> None:
    with pytest.raises(InvariantViolation, match="format"):
        TO_SHARD.read(pack({}, kind="records", format=FORMAT + 1))
