"""A shard's values against a plain dict, and what merging its blobs costs."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamydb import limits
from streamydb.errors import InvariantViolation
from streamydb.frames import program as p
from streamydb.frames.blobs import BLOBS_LEFT, Blob, merge_from
from streamydb.frames.encoding import unpack
from streamydb.frames.hashing import hash_ragged
from streamydb.frames.table import Ragged
from streamydb.frames.value_rows import ValueRows, WrittenValues
from streamydb.key_processor.memory import MemoryBlobs, MemoryValues
from streamydb.key_processor.values import ShardValues, ValuesState
from tests.support.seeds import seeds

Value = tuple[int, int, bytes, int]
"""Tag, number, text and version."""
NOTHING: Value = (p.ABSENT, 0, b"", 0)


class CountingBlobs(MemoryBlobs):
    """Counts the bytes that are put."""

    written = 0

    def put(self, name: str, data: bytes) -> None:
        assert name not in self.blobs
        self.written += len(data)
        super().put(name, data)


def table_of(writes: dict[bytes, Value]) -> WrittenValues:
    rows = list(writes.values())
    texts = [text for _, _, text, _ in rows]
    return WrittenValues(
        np.array([tag for tag, _, _, _ in rows], np.uint8),
        np.array([number for _, number, _, _ in rows], np.int64),
        np.array([version for _, _, _, version in rows], np.int64),
        Ragged.of(list(writes)),
        Ragged.of(texts),
    )


def rows_of(table: ValueRows | WrittenValues) -> list[Value]:
    numbers = table.tag.tolist(), table.number.tolist()
    return list(zip(*numbers, table.text.tolist(), table.version.tolist(), strict=True))


@dataclass
class Database:
    """One shard, plan by plan, through encoded state; ``expected``: what it must hold."""

    blobs: CountingBlobs = field(default_factory=CountingBlobs)
    store: MemoryValues = field(default_factory=MemoryValues)
    state: bytes = field(default_factory=lambda: msgspec.msgpack.encode(ValuesState()))
    expected: dict[bytes, Value] = field(default_factory=dict)
    appended: list[int] = field(default_factory=list)

    def open(self) -> ShardValues:
        state = msgspec.msgpack.decode(self.state, type=ValuesState)
        return ShardValues(state, self.blobs, self.store)

    def index(self) -> list[Blob]:
        return self.open().state.blobs

    def apply(self, writes: dict[bytes, Value]) -> None:
        values, before = self.open(), self.blobs.written
        values.apply(table_of(writes))
        self.appended.append(self.blobs.written - before)
        self.state = msgspec.msgpack.encode(values.state)
        for key, value in writes.items():
            self.expected[key] = value
            if value[0] == p.ABSENT:
                del self.expected[key]
        assert set(self.blobs.blobs) == {
            name
            for blob in values.state.blobs
            for name in [f"{blob.name}/{i}" for i in range(blob.parts)] or [blob.name]
        }

    def check(self, others: Sequence[bytes] = ()) -> None:
        keys = [*self.expected, *others]
        found = rows_of(self.open().read(Ragged.of(keys)))
        assert found == [self.expected.get(key, NOTHING) for key in keys]

    def check_everything(self) -> None:
        table = self.open().everything()
        keys = table.key.tolist()
        assert len(set(keys)) == len(keys)
        assert dict(zip(keys, rows_of(table), strict=True)) == self.expected


def draw_value(rng: random.Random, version: int) -> Value:
    tag = rng.choice([p.ABSENT, p.INT, p.INT, p.OPAQUE])
    if tag == p.INT:
        number = rng.choice([0, -1, 2**63 - 1, -(2**63), rng.randrange(10**9)])
        return tag, number, b"", version
    if tag == p.OPAQUE:
        text = bytes(rng.choices(b"abc[]\xc3\xa9", k=rng.randint(1, 40)))
        return tag, 0, text, version
    return NOTHING


def draw_writes(rng: random.Random, keys: Sequence[bytes], plan: int) -> dict[bytes, Value]:
    chosen = rng.sample(keys, rng.randint(0, min(len(keys), rng.choice([1, 5, 60]))))
    return {key: draw_value(rng, 100 * plan + i + 1) for i, key in enumerate(chosen)}


def names(form: str, count: int) -> list[bytes]:
    return [(form % i).encode() for i in range(count)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("form", ["%d", "account/%06d", "%d/é\n"])
def test_hundreds_of_plans_agree_with_a_dict(form: str, seed: int) -> None:
    """Through lost files, repeated plans and plans that failed after the file had moved."""
    rng = random.Random(seed)
    keys = names(form, rng.choice([3, 40, 300]))
    db = Database()
    for plan in range(150):
        writes = draw_writes(rng, keys, plan)
        if rng.random() < 0.1:
            before = copy.deepcopy(db.blobs)
            db.open().apply(table_of(writes))
            db.blobs = before
        if rng.random() < 0.05:
            db.store = MemoryValues()
        if rng.random() < 0.05:
            old = copy.deepcopy(db.store)
            db.apply(writes)
            db.store = old
        else:
            db.apply(writes)
        db.check([*rng.sample(keys, 3), b"never"])
        if plan % 10 == 0:
            db.check_everything()
    db.check_everything()
    assert db.store.position() == (db.open().state.applied, db.open().state.digest)


def test_a_file_that_went_another_way_is_thrown_away() -> None:
    """A plan that was applied to the file, failed, and was made again with other writes."""
    db = Database()
    db.apply({b"a": (p.INT, 1, b"", 1)})
    for writes in ({b"b": (p.INT, 2, b"", 2), b"a": NOTHING}, {b"b": (p.INT, 2, b"", 2)}):
        before = copy.deepcopy(db.blobs)
        db.open().apply(table_of(writes))
        db.blobs = before
        assert b"b" in db.store.data
        if b"a" in writes:
            db.check([b"b"])
    db.apply({b"c": (p.OPAQUE, 0, b"[]", 2)})
    db.check([b"b"])
    assert set(db.store.data) == {b"a", b"c"}


def test_without_writes_nothing_happens() -> None:
    db = Database()
    db.apply({})
    db.check([b"a", b""])
    db.check_everything()
    assert db.state == msgspec.msgpack.encode(ValuesState())
    assert len(WrittenValues.none()) == db.blobs.written == 0
    assert len(db.open().read(Ragged.empty())) == 0


def test_deleted_keys_leave_nothing_behind() -> None:
    db = Database()
    keys = names("key/%d", 500)
    db.apply(dict.fromkeys(keys, (p.OPAQUE, 0, b'"x"', 1)))
    full = db.blobs.written
    db.apply(dict.fromkeys(keys, NOTHING))
    db.check(keys)
    db.check_everything()
    assert db.store.data == {}
    db.apply(dict.fromkeys(keys, NOTHING))  # now the deletes have more bytes than the values
    assert len(db.index()) == 1
    assert sum(map(len, db.blobs.blobs.values())) < full / 10


def test_a_delete_hides_what_an_older_blob_holds() -> None:
    """The newest blobs are merged without the oldest: their deletes must survive."""
    db = Database()
    db.apply(dict.fromkeys(names("key/%d", 2000), (p.INT, 7, b"", 1)))
    deleted = names("key/%d", BLOBS_LEFT)
    for key in deleted:
        db.apply({key: NOTHING})
    assert [blob.first for blob in db.index()] == [1, 2]
    db.store = MemoryValues()
    db.check(deleted)
    db.check_everything()
    assert len(db.expected) == 2000 - BLOBS_LEFT


@pytest.mark.parametrize("damage", ["missing", "swapped", "lost"])
def test_blobs_that_are_not_the_states_stop_everything(damage: str) -> None:
    db = Database()
    db.apply(dict.fromkeys(names("%d", 1000), (p.INT, 1, b"", 1)))
    db.apply({b"1": (p.INT, 2, b"", 2)})
    db.store = MemoryValues()
    values = db.open()
    if damage == "missing":
        db.blobs.delete(values.state.blobs[0].name)
    elif damage == "swapped":
        values.state.blobs.reverse()
    else:
        values.state.blobs.pop()
    with pytest.raises(InvariantViolation, match="state"):
        values.read(Ragged.of([b"1"]))


@pytest.mark.fault(
    37, "blobs of values larger than a part are merged, read and rebuilt from",
    "as in one piece; a few parts in memory",
)  # fmt: skip
@pytest.mark.parametrize("part", [1, 60, 400, 3000])
@pytest.mark.parametrize("seed", range(seeds(3, 1)))
def test_large_blobs_are_merged_part_by_part(
    part: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Begun with blobs of an earlier release, unsorted and in one piece."""
    rng = random.Random(seed)
    db, keys = Database(), names("key/%d", 120)
    split = 0
    for plan in range(40):
        if plan == 12:
            monkeypatch.setattr(limits, "BLOCK_BYTES_MAX", part)
        chosen = rng.sample(keys, 120 if plan == 20 else rng.choice([1, 3, 30]))
        known = [key for key in chosen if key in db.expected or rng.random() < 0.9]
        writes = {key: draw_value(rng, plan + 1) for key in known}
        db.apply({k: v for k, v in writes.items() if v[0] != p.ABSENT or k in db.expected})
        split += sum(blob.parts > 1 for blob in db.index())
        if rng.random() < 0.2:
            db.store = MemoryValues()
        db.check(keys)
        db.check_everything()
    assert split


@pytest.mark.parametrize(("count", "size"), [(20, 20), (5000, 20), (5000, 1), (100_000, 50)])
def test_few_blobs_and_little_rewriting(count: int, size: int) -> None:
    """400 plans on few keys that are overwritten, and on many that are not."""
    rng = random.Random(count)
    db, plans = Database(), 400
    for plan in range(plans):
        chosen = {b"key/%d" % rng.randrange(count) for _ in range(size)}
        db.apply({key: (p.INT, rng.randrange(1000), b"", plan + 1) for key in sorted(chosen)})
        sizes = [blob.size for blob in db.index()]
        assert len(sizes) <= math.log2(sum(sizes) / min(sizes)) + BLOBS_LEFT + 1
        assert sizes == [len(db.blobs.blobs[blob.name]) for blob in db.index()]
    db.check_everything()
    fresh = 40 * size + 500
    assert db.blobs.written < plans * fresh * (1 + math.log(plans, 1.5))
    assert max(db.appended) <= 2 * sum(map(len, db.blobs.blobs.values())) + fresh
    assert sum(map(len, db.blobs.blobs.values())) <= 3 * (40 * len(db.expected) + 500)


@settings(max_examples=300)
@given(st.lists(st.integers(1, 10**6), max_size=60))
def test_merging_is_geometric(fresh: list[int]) -> None:
    """The others never have more than the oldest blob. Every byte that is merged lands in a blob
    half as large again, but for the newest bytes, and for the others beside the oldest.
    """
    blobs, moved = list[list[int]](), [0] * len(fresh)
    for i, size in enumerate(fresh):
        blobs.append([i])
        sizes = [sum(fresh[j] for j in blob) for blob in blobs]
        start = merge_from(sizes)
        assert start == len(sizes) or start < len(sizes) - 1
        for j in (j for blob in blobs[start:-1] for j in blob):
            moved[j] += 1
        merged = sorted(j for blob in blobs[start:] for j in blob)
        blobs[start:] = [merged] if merged else []
        sizes = [sum(fresh[j] for j in blob) for blob in blobs]
        assert sum(sizes[1:]) <= sizes[0]
        assert all(left >= 2 * right for left, right in pairwise(sizes[BLOBS_LEFT - 1 :]))
        assert len(sizes) <= math.log2(sum(sizes) / size) + BLOBS_LEFT
    for size, times in zip(fresh, moved, strict=True):
        assert times <= math.log(sum(fresh) / size, 1.5) + 2


def test_where_merging_begins() -> None:
    assert merge_from([]) == 0
    assert merge_from([5]) == 1
    assert merge_from([10, 10]) == 2
    assert merge_from([10, 11]) == 0
    assert merge_from([10, 5, 5]) == 3
    assert merge_from([10, 5, 6]) == 0
    full = [9_000, *[100] * (BLOBS_LEFT - 1)]
    assert merge_from(full) == BLOBS_LEFT
    assert merge_from([*full, 50]) == BLOBS_LEFT + 1
    assert merge_from([*full, 51]) == 1
    later = 200 * (BLOBS_LEFT - 1)
    assert merge_from([9_000, later - 1, *full[1:]]) == 1
    assert merge_from([9_000, later, *full[1:]]) == 2
    assert merge_from([*full[:-1], 900, 402, 51, 150]) == BLOBS_LEFT + 1


def test_a_large_plan_lies_in_sorted_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """So whoever merges holds some parts of it, not all."""
    monkeypatch.setattr(limits, "BLOCK_BYTES_MAX", 1_000)
    db, keys = Database(), names("a long key, of which many are a part/%d", 100)
    writes = dict.fromkeys(keys, (p.INT, 7, b"", 1))
    db.apply(writes)
    (blob,) = db.index()
    tables = [WrittenValues.unflatten(unpack(db.blobs.blobs[f"{blob.name}/{part}"])[1])
              for part in range(blob.parts)]  # fmt: skip
    assert blob.parts > 3
    hashes = hash_ragged(Ragged.concat([table.key for table in tables])).tolist()
    assert hashes == sorted(hashes)
    assert blob.size == sum(map(len, db.blobs.blobs.values()))
    db.check(keys)
    db.store = MemoryValues()
    db.check_everything()
