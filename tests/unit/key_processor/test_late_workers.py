"""A worker of a batch that was given up, on the same local files as the worker of the next one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from streamydb.frames import program as p
from streamydb.frames.table import Ragged
from streamydb.frames.value_rows import WrittenValues
from streamydb.key_processor.id_rows import UsedIds
from streamydb.key_processor.idwindow import IdWindow, IdWindowState
from streamydb.key_processor.memory import MemoryBlobs
from streamydb.key_processor.values import Overtaken, ShardValues, ValuesState
from streamydb.local.id_files import FileIdTables
from streamydb.local.shard_files import LmdbValues

KEYS = [b"a", b"b", b"c"]
Contents = dict[bytes, bytes | None]


def writes(after: Contents) -> WrittenValues:
    """Writes of texts; None deletes."""
    tags = [p.ABSENT if text is None else p.OPAQUE for text in after.values()]
    return WrittenValues(
        np.array(tags, np.uint8),
        np.zeros(len(after), np.int64),
        np.ones(len(after), np.int64),
        Ragged.of(list(after)),
        Ragged.of([text or b"" for text in after.values()]),
    )


PLANS: list[Contents] = [
    {b"a": b'"a1"', b"b": b'"b1"'},
    {b"a": b'"a2"', b"b": None},
    {b"b": b'"b3"', b"c": b'"c3"'},
    {b"a": b'"a4"', b"c": None},
]


def content(plans: int) -> list[bytes | None]:
    """What the keys hold after so many plans."""
    found: Contents = {}
    for after in PLANS[:plans]:
        found |= after
    return [found.get(key) for key in KEYS]


class Worker:
    """A worker with the state after some plans, on the files of a folder."""

    def __init__(self, folder: Path, plans: int) -> None:
        blobs, state = MemoryBlobs(), ValuesState()
        for after in PLANS[:plans]:
            away = LmdbValues(folder / "of-its-own")
            values = ShardValues(state, blobs, away)
            values.apply(writes(after))
            LmdbValues.close(folder / "of-its-own")
        state = msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=ValuesState)
        self.values = ShardValues(state, blobs, LmdbValues(folder))

    def read(self) -> list[bytes | None]:
        """What the keys hold, as it sees them."""
        found = self.values.read(Ragged.of(KEYS))
        pairs = zip(found.tag.tolist(), found.text.tolist(), strict=True)
        return [None if tag == p.ABSENT else text for tag, text in pairs]


def complete(tables: FileIdTables) -> int:
    """Up to which seq the only table is complete."""
    (name,) = tables.names()
    table = tables.get(name)
    assert table is not None
    return int(table[0]["seq"])


def before_next(monkeypatch: pytest.MonkeyPatch, name: str, what: Callable[[], object]) -> None:
    """Have something happen before the next call of an operation of the file, once."""
    original = getattr(LmdbValues, name)

    def disturbed(self: LmdbValues, *args: Any) -> Any:
        monkeypatch.setattr(LmdbValues, name, original)
        what()
        return original(self, *args)

    monkeypatch.setattr(LmdbValues, name, disturbed)


@pytest.mark.fault(
    41, "another worker uses the local file between any two operations", "each sees its own state"
)  # fmt: skip
@pytest.mark.parametrize("others", [1, 2, 3, 4])
def test_a_read_is_of_one_state_whoever_comes_between(
    others: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, other = Worker(tmp_path, 3), Worker(tmp_path, others)
    assert reader.read() == content(3)
    before_next(monkeypatch, "load", other.read)
    try:
        assert reader.read() == content(3)
    except Overtaken:
        assert others > 3
    assert other.read() == content(others)


@pytest.mark.fault(
    41, "a late worker writes after the next one", "refused: the file is what it says it is"
)  # fmt: skip
def test_a_late_write_leaves_no_mixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the file says it is, it is: here the state after two plans, without the third's."""
    late, current = Worker(tmp_path, 1), Worker(tmp_path, 3)
    assert late.read() == content(1)
    before_next(monkeypatch, "apply", current.read)
    with suppress(Overtaken):
        late.values.apply(writes(PLANS[1]))
    assert Worker(tmp_path, 2).read() == content(2)
    assert current.read() == content(3)


@pytest.mark.fault(
    41, "two workers take turns in rebuilding the local file", "both come to an end"
)  # fmt: skip
@pytest.mark.parametrize(("outer", "inner"), [(4, 2), (2, 4), (2, 3)])
def test_two_workers_that_alternate_both_come_to_an_end(
    outer: int, inner: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before every write of one, the other brings the file to its own state. The late one may give
    up; the other one comes to its end.
    """
    one, other = Worker(tmp_path, outer), Worker(tmp_path, inner)
    original = LmdbValues.apply
    busy, times = [False], [0]

    def disturbed(self: LmdbValues, *args: Any) -> bool:
        if not busy[0] and times[0] < 20:
            busy[0], times[0] = True, times[0] + 1
            assert other.read() == content(inner)
            busy[0] = False
        return original(self, *args)

    monkeypatch.setattr(LmdbValues, "apply", disturbed)
    if outer > inner:
        assert one.read() == content(outer)
    else:
        with pytest.raises(Overtaken):
            one.read()
    assert 0 < times[0] <= 20
    assert Worker(tmp_path, 4).read() == content(4)


@pytest.mark.fault(
    41, "two workers open the tables of ids", "the second one makes its own"
)  # fmt: skip
def test_tables_of_ids_belong_to_one_worker_at_a_time(tmp_path: Path) -> None:
    other = np.array([7, 9])
    id0, id1, payload = np.array([[1, 2], [3, 4], [7, 9]], np.uint64)
    used = UsedIds(id0, id1, payload, np.array([1, 2]), other, other, other, None)
    state, blobs = IdWindowState(100), MemoryBlobs()
    first, second = FileIdTables(tmp_path), FileIdTables(tmp_path)
    assert (first.shared, second.shared) == (True, False)
    window = IdWindow(state, blobs, first)
    window.remember(used, 1, 2)
    found = window.last_use(used.id0, used.id1, 2)
    late = IdWindow(state, blobs, second)
    assert late.last_use(used.id0, used.id1, 2).tolist() == found.tolist() == [1, 2]
    (name,) = first.names()
    second.create(name, 1024, lambda _: None)
    assert complete(first) == 2, "what the second makes is its own"
    first.close()
    third = FileIdTables(tmp_path)
    assert third.shared
    assert complete(third) == 2
    third.close()
    second.close()
