"""The items of the local file of values, and the file itself: LMDB beside the one in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from streamydb.frames import program as p
from streamydb.frames.blobs import HEAD_BYTES, KeyScan, end_name, key_named
from streamydb.frames.table import Ragged
from streamydb.frames.value_rows import WrittenValues
from streamydb.key_processor.memory import MemoryValues
from streamydb.key_processor.value_store import (
    INT_ITEM,
    FileOrder,
    Items,
    ValueStore,
    decoded,
    items_of,
    nearly_sorted,
)
from streamydb.limits import INTEGER_MAX, INTEGER_MIN
from streamydb.local import shard_files
from streamydb.local.shard_files import LmdbValues

ROWS = [
    (b"a", p.INT, 5, b""), (b"b", p.INT, INTEGER_MIN, b""), (b"c", p.INT, INTEGER_MAX, b""),
    (b"d", p.OPAQUE, 0, b'"text"'), (b"e", p.OPAQUE, 0, b'"eight by"'), (b"f", p.ABSENT, 0, b""),
    (b"g", p.EXPIRING, 1_700_000_000_000, b"5"), (b"h", p.EXPIRING, 7, b'"text"'),
]  # fmt: skip


def table(rows: list[tuple[bytes, int, int, bytes]]) -> WrittenValues:
    return WrittenValues(
        np.array([row[1] for row in rows], np.uint8),
        np.array([row[2] for row in rows], np.int64),
        np.arange(len(rows)) + (1 << 40),
        Ragged.of([row[0] for row in rows]),
        Ragged.of([row[3] for row in rows]),
    )


@pytest.mark.parametrize("rows", [ROWS, ROWS[:3], []])
def test_items_come_back_as_the_values_they_were(rows: list[tuple[bytes, int, int, bytes]]) -> None:
    writes = table(rows)
    puts, deletes, ends = items_of(writes)
    named = [(number, key) for key, tag, number, _ in rows if tag == p.EXPIRING]
    assert [key_named(name) for name in ends] == named
    assert deletes == [key for key, tag, _, _ in rows if tag == p.ABSENT]
    found = dict(puts)
    values = decoded(Ragged.of([found.get(row[0], b"") for row in rows]))
    live = writes.tag != p.ABSENT
    assert values.tag.tolist() == writes.tag.tolist()
    assert values.number.tolist() == writes.number.tolist()
    assert values.version[live].tolist() == writes.version[live].tolist()
    assert values.text.tolist() == [row[3] for row in rows]


def test_an_item_has_a_layout_that_never_changes() -> None:
    (number, text, ending), _, _ = items_of(table([ROWS[0], ROWS[3], ROWS[7]]))
    version = (1 << 40).to_bytes(8, "little")
    assert number == (b"a", version + b"\x01" + (5).to_bytes(8, "little"))
    assert text == (b"d", ((1 << 40) + 1).to_bytes(8, "little") + b"\x02" + b'"text"')
    head = ((1 << 40) + 2).to_bytes(8, "little") + b"\x03" + (7).to_bytes(8, "little")
    assert ending == (b"h", head + b'"text"')
    assert (len(number[1]), HEAD_BYTES) == (INT_ITEM.itemsize, 9)


def test_keys_are_ordered_by_what_follows_their_common_prefix() -> None:
    keys = [b"account/%09d/x" % i for i in (5, 1, 300, 77, 0)]
    assert [keys[i] for i in FileOrder.of(Ragged.of(keys)).rows.tolist()] == sorted(keys)
    rows = [(key, p.INT, i, b"") for i, key in enumerate([b"b", b"", b"ab", b"a"])]
    assert nearly_sorted(table(rows)).key.tolist() == [b"", b"a", b"ab", b"b"]


@pytest.fixture(params=["lmdb", "memory"])
def reopened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], ValueStore]]:
    """Opens the store again, like the worker of the next batch."""
    memory = MemoryValues()
    yield lambda: memory if request.param == "memory" else LmdbValues(tmp_path)
    LmdbValues.close(tmp_path)


def test_a_file_is_read_and_written_at_the_position_that_it_has(
    reopened: Callable[[], ValueStore],
) -> None:
    store = reopened()
    assert store.position() == (0, "")
    assert store.apply((0, ""), (1, "one"), [(b"a", b"1"), (b"b", b"22"), (b"\x00", b"")], [])
    assert not store.apply((0, ""), (2, "late"), [(b"a", b"late")], [b"b"])
    assert not store.apply((1, "other"), (2, "late"), [(b"a", b"late")], [b"b"])
    again = reopened()
    assert again.position() == (1, "one")
    assert again.load((1, "one"), [b"b", b"none", b"a", b"\x00"]) == [b"22", None, b"1", b""]
    assert again.sizes((1, "one"), [b"b", b"none", b"\x00"]) == [2, -1, 0]
    assert again.load((1, "other"), [b"a"]) is None
    assert again.sizes((0, ""), [b"a"]) is None


def test_values_that_are_slow_to_load_come_together_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_files, "_SLOW_S", -1.0)
    store = LmdbValues(tmp_path)
    keys = [b"%d" % n for n in range(1_000)]
    puts = [(key, b"value of " + key) for key in keys[::2]]
    assert store.apply((0, ""), (1, "x"), puts, [])
    wanted = [dict(puts).get(key) for key in keys]
    assert store.load((1, "x"), keys) == wanted  # one by one, the first time
    used: list[ThreadPoolExecutor] = []
    threads = shard_files._threads

    def spied() -> ThreadPoolExecutor:
        used.append(threads())
        return used[-1]

    monkeypatch.setattr(shard_files, "_threads", spied)
    for count in (0, 1, 15, 16, 17, 1_000):
        assert store.load((1, "x"), keys[:count]) == wanted[:count]
        assert store.load((0, ""), keys[:count]) is None
    assert len(used) == 12
    LmdbValues.close(tmp_path)


def test_deleted_and_cleared_values_are_gone(reopened: Callable[[], ValueStore]) -> None:
    store = reopened()
    assert store.apply((0, ""), (1, "one"), [(b"a", b"1"), (b"b", b"2")], [])
    assert store.apply((1, "one"), (2, "two"), [(b"c", b"3")], [b"a", b"none"])
    assert store.load((2, "two"), [b"a", b"b", b"c"]) == [None, b"2", b"3"]
    assert not store.clear((1, "one"), (3, "nothing"))
    assert store.load((2, "two"), [b"b"]) == [b"2"]
    assert store.clear((2, "two"), (3, "nothing"))
    again = reopened()
    assert again.position() == (3, "nothing")
    assert again.load((3, "nothing"), [b"b", b"c"]) == [None, None]


def test_what_ends_is_found_in_order_as_long_as_it_is_there(
    reopened: Callable[[], ValueStore],
) -> None:
    def put(rows: list[tuple[bytes, int, int, bytes]]) -> Items:
        return items_of(table(rows))

    def due(until_ms: int, after: bytes = b"", most: int = 9) -> list[tuple[int, bytes]]:
        found = reopened().due(reopened().position(), until_ms, after, most)
        return [] if found is None else [key_named(name) for name in found]

    rows = [(b"a", p.EXPIRING, 300, b"1"), (b"b", p.EXPIRING, 7, b"1"), (b"c", p.INT, 7, b"")]
    assert reopened().apply((0, ""), (1, "one"), *put([*rows, (b"0", p.EXPIRING, 300, b"1")]))
    assert due(6) == []
    assert due(7) == due(299) == [(7, b"b")]
    assert due(300) == [(7, b"b"), (300, b"0"), (300, b"a")]
    assert due(300, most=2) == [(7, b"b"), (300, b"0")]
    assert due(300, end_name(b"0", put([(b"0", p.EXPIRING, 300, b"1")])[0][0][1])) == [(300, b"a")]
    assert reopened().due((0, ""), 300, b"", 9) is None
    later = [(b"a", p.EXPIRING, 400, b"1"), (b"b", p.OPAQUE, 0, b"[]"), (b"0", p.ABSENT, 0, b"")]
    assert reopened().apply((1, "one"), (2, "two"), *put(later))
    assert due(1 << 60) == [(400, b"a")]
    sizes = reopened().sizes((2, "two"), [b"a", b"b", b"c"])
    assert sizes == [HEAD_BYTES + 1, HEAD_BYTES + 2, INT_ITEM.itemsize]
    assert reopened().clear((2, "two"), (3, "nothing"))
    assert due(1 << 60) == []


def test_a_range_is_scanned_in_order(reopened: Callable[[], ValueStore]) -> None:
    store = reopened()
    puts = [(key, b"h" * HEAD_BYTES + key) for key in (b"b", b"a/1", b"a/2", b"a/\xc3\xa9", b"a0")]
    assert store.apply((0, ""), (1, "one"), puts, [])
    again, at = reopened(), (1, "one")
    assert again.scan((0, ""), KeyScan(b"a", b"b", (), 9, 99)) is None
    keys = [b"a/1", b"a/2", b"a/\xc3\xa9"]
    assert again.scan(at, KeyScan(b"a/", b"a0", (), 9, 99)) == sorted(puts)[:3]
    assert [key for key, _ in again.scan(at, KeyScan(b"a/", b"a0", {b"a/2"}, 9, 99)) or ()] == [
        keys[0],
        keys[2],
    ]
    assert again.scan(at, KeyScan(b"a", b"z", (), 2, 99)) == sorted(puts)[:2]
    assert again.scan(at, KeyScan(b"c", b"a", (), 2, 99)) == []
    assert again.scan(at, KeyScan(b"zz", b"zzz", (), 2, 99)) == []
    few = again.scan(at, KeyScan(b"a/", b"a0", (), 9, 6)) or []
    assert [len(item) - HEAD_BYTES for _, item in few] == [3, 0, 0]
    none = again.scan(at, KeyScan(b"a/", b"a0", (), 9, -1)) or []
    assert [(key, len(item)) for key, item in none] == [(key, HEAD_BYTES) for key in keys]
