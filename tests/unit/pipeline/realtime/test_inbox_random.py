"""The inbox of the real-time worker: everything comes out once, in order, and little waits."""

from __future__ import annotations

import random
import threading

import pyarrow as pa
import pytest

from streamydb.pipeline.realtime import inbox as module
from streamydb.pipeline.realtime.inbox import Inbox, LogColumns
from streamydb.pipeline.realtime.rows import record_columns


def columns(offsets: list[int], value: bytes = b"v") -> LogColumns:
    return LogColumns(
        pa.array(offsets, pa.int64()),
        pa.array(offsets, pa.int64()),
        pa.array([value] * len(offsets), pa.binary()),
    )


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(20))
def test_all_comes_out_once_in_order_and_no_more_waits_than_is_allowed(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(seed)
    records_max, size_max = dice.randint(1, 9), dice.randint(1, 5)
    monkeypatch.setattr(module, "RECORDS_MAX", records_max)
    monkeypatch.setattr(module, "_BYTES_MAX", dice.choice([1, 60, 1 << 20]))
    inbox: Inbox[str] = Inbox()
    sizes = [dice.randint(1, size_max) for _ in range(60)]
    total = sum(sizes)

    def put() -> None:
        first = 0
        for size in sizes:
            assert inbox.put(columns(list(range(first, first + size))))
            first += size
        inbox.say("end")

    thread = threading.Thread(target=put)
    thread.start()
    found: list[int] = []
    ended = False
    while not ended:
        group: list[int] = []
        for item in inbox.take(20):
            if isinstance(item, LogColumns):
                group += item.offsets.to_pylist()
            else:
                ended = True
        assert len(group) < records_max + size_max
        found += group
    thread.join(20)
    assert found == list(range(total))
    assert inbox.is_empty()


@pytest.mark.parametrize("full_by", ["records", "bytes"])
def test_a_full_inbox_takes_messages_and_lets_go_when_it_is_closed(
    full_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RECORDS_MAX", 2 if full_by == "records" else 100)
    monkeypatch.setattr(module, "_BYTES_MAX", 1_000)
    inbox: Inbox[str] = Inbox()
    assert inbox.put(columns([1, 2], b"v" * 600))
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(inbox.put(columns([3]))))
    thread.start()
    inbox.say("play")
    thread.join(0.2)
    assert thread.is_alive()
    inbox.close()
    thread.join(20)
    assert answers == [False]
    assert [type(item) for item in inbox.take(0)] == [LogColumns, str]
    assert inbox.take(0) == []


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(20))
def test_packed_rows_and_rows_of_nulls_have_the_same_records(seed: int) -> None:
    dice = random.Random(seed)
    rows = [(i, 2 * i, dice.choice([None, b"", b"x" * i])) for i in range(dice.randint(0, 30))]
    fields = [("a", pa.int64()), ("b", pa.int64()), ("c", pa.binary())]
    names = [name for name, _ in fields]
    structs = [dict(zip(names, row, strict=True)) for row in rows]
    cuts = sorted(dice.choices(range(len(rows) + 1), k=4))
    parts = [structs[i:j] for i, j in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    packs = pa.RecordBatch.from_arrays(
        [pa.array(parts, pa.list_(pa.struct(fields)))], names=["records"]
    )
    with_nulls = [each for row in structs for each in (row, dict.fromkeys(names))]
    nulls = pa.RecordBatch.from_pylist(with_nulls, pa.schema(fields))
    for batch, parts_of in ((packs, 5), (nulls, len(with_nulls))):
        at = dice.randint(0, parts_of)
        both = [record_columns(batch.slice(0, at)), record_columns(batch.slice(at))]
        halves = [[column.to_pylist() for column in half] for half in both]
        found = [first + second for first, second in zip(*halves, strict=True)]
        assert list(zip(*found, strict=True)) == rows
