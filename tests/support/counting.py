"""Tables in memory that note what statements read, and a table of people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from streamydb_layers.tables import Tables
from streamydb_layers.tables.memory import MemoryStore


class Counting(MemoryStore):
    """Notes what transactions read."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[str] = []

    def begin(self) -> Any:
        return Noting(super().begin(), self.noted)


class Noting:
    """A snapshot that notes what is read of rows and entries."""

    def __init__(self, inner: Any, noted: list[str]) -> None:
        self.inner, self.noted = inner, noted

    def read(self, keys: Sequence[str]) -> Any:
        self.noted += [f"get {key.split('/')[2]}" for key in keys if "/table/" not in key]
        return self.inner.read(keys)

    def scan(self, start: str, end: str) -> Iterable[tuple[str, Any]]:
        found = self.inner.scan(start, end)
        self.noted.append(f"scan {start.split('/')[2]} {len(found)}")
        return list(found)

    def commit(self, writes: Any) -> None:
        self.inner.commit(writes)


def make_people(tables: Tables, indexed: str) -> None:
    """Ten rows of `p`, half of them in Bonn, with an index of some columns."""
    tables.sql("create table p (id int primary key, mail text unique, city text, born int)")
    tables.sql(f"create index by_city on p ({indexed})")
    for number in range(10):
        city = "Bonn" if number % 2 else "Köln"
        tables.sql("insert into p values (?, ?, ?, ?)", [number, f"m{number}", city, number])
