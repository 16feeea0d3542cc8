"""Tables of ids: what a use leaves, where ids meet, and when a table grows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from streamydb.key_processor.id_rows import (
    FIRST_CAPACITY,
    IdTables,
    UsedIds,
    capacity_of,
    entries_of,
    insert,
    probe,
)
from streamydb.key_processor.memory import MemoryIdTables
from streamydb.local.id_files import FileIdTables

Use = tuple[int, int, int]


@pytest.fixture(params=["file", "memory"])
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[IdTables]:
    if request.param == "memory":
        yield MemoryIdTables()
        return
    with closing(FileIdTables(tmp_path)) as files:
        yield files


def put(tables: IdTables, name: str, uses: list[Use]) -> None:
    table = tables.get(name)
    id0, id1 = (np.array([use[at] for use in uses], np.uint64) for at in (0, 1))
    seq = np.array([use[2] for use in uses], np.int64)
    rows = UsedIds(id0, id1, id0, seq, seq, seq, seq, None)
    if table is None:
        table = tables.create(name, 16, lambda _: None)
    insert(tables, name, table, entries_of(rows))


def look(tables: IdTables, name: str, ids: list[tuple[int, int]], upto: int) -> list[int]:
    out, table = np.zeros(len(ids), np.int64), tables.get(name)
    assert table is not None
    id0, id1 = (np.array([pair[k] for pair in ids], np.uint64) for k in (0, 1))
    probe(table, id0, id1, out, upto)
    return out.tolist()


def test_the_last_use_that_counts_is_found(tables: IdTables) -> None:
    put(tables, "g0", [(15, 1, 3), (15, 1, 6), (15, 2, 5), (31, 1, 8)])
    ids = [(15, 1), (15, 2), (31, 1), (31, 2), (0, 0)]
    assert look(tables, "g0", ids, 8) == [6, 5, 8, 0, 0]
    assert look(tables, "g0", ids, 5) == [3, 5, 0, 0, 0]
    header = tables.get("g0")
    assert header is not None
    assert (int(header[0]["id0"]), int(header[0]["seq"])) == (4, 8)


def test_what_is_inserted_again_takes_no_more_room(tables: IdTables) -> None:
    for _ in range(3):
        put(tables, "g0", [(15, 1, 3), (0, 9, 4), (15, 1, 6)])
    table = tables.get("g0")
    assert table is not None
    assert (int(table[0]["id0"]), int(np.count_nonzero(table[1:]["seq"]))) == (3, 3)
    assert look(tables, "g0", [(15, 1), (0, 9)], 9) == [6, 4]


@pytest.mark.parametrize("seed", range(5))
def test_a_table_agrees_with_a_list_while_it_grows(seed: int, tables: IdTables) -> None:
    rng = random.Random(seed)
    known: list[Use] = []
    for _ in range(30):
        first = len(known) + 1
        fresh = [(rng.randrange(60) * 1024, rng.randrange(1, 9), first + k)
                 for k in range(rng.randrange(150))]  # fmt: skip
        put(tables, "g0", fresh)
        known += fresh
        table = tables.get("g0")
        assert table is not None
        assert 2 * int(table[0]["id0"]) <= len(table) - 1
    upto = rng.randrange(len(known))
    ids = sorted({use[:2] for use in known})
    wanted = [max((u[2] for u in known if u[:2] == i and u[2] <= upto), default=0) for i in ids]
    assert look(tables, "g0", ids, upto) == wanted


@pytest.mark.parametrize(
    ("ids", "places"), [(0, 1024), (1, 1024), (512, 1024), (513, 2048), (1024, 2048), (1025, 4096)]
)
def test_at_most_half_of_a_table_is_full(ids: int, places: int) -> None:
    assert (capacity_of(ids), FIRST_CAPACITY) == (places, 1024)


def test_tables_are_found_by_name_until_they_are_dropped(tables: IdTables, tmp_path: Path) -> None:
    assert (tables.get("g1"), tables.names()) == (None, [])
    put(tables, "g1", [(1, 1, 1)])
    put(tables, "d7", [(2, 2, 2)])
    assert sorted(tables.names()) == ["d7", "g1"]
    assert look(tables, "d7", [(2, 2), (1, 1)], 9) == [2, 0]
    tables.create("d7", 16, lambda _: None)
    assert look(tables, "d7", [(2, 2)], 9) == [0]
    tables.drop("g1")
    tables.drop("none")
    assert (tables.get("g1"), tables.names()) == (None, ["d7"])
    assert not list(tmp_path.rglob("g1*"))


def test_a_file_is_there_for_the_next_worker(tmp_path: Path) -> None:
    with closing(FileIdTables(tmp_path)) as tables:
        put(tables, "g0", [(3, 3, 5)])
    with closing(FileIdTables(tmp_path)) as tables:
        assert look(tables, "g0", [(3, 3)], 9) == [5]
