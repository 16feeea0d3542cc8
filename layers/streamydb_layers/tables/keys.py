"""Keys of tables: `sql/<name>/...`, and the text that rows and index entries sort by.

| key | value |
|---|---|
| `sql/<name>/table/<table>` | the definition of a table or view |
| `sql/<name>/index/<index>` | the table that has the index |
| `sql/<name>/number` | the last number that was given to a table or an index |
| `sql/<name>/identity/<table number>` | the last number that was given to a row |
| `sql/<name>/row/<table number>/<primary key>` | a row: an object of its columns |
| `sql/<name>/entry/<index number>/<values>` | unique index: the row's primary key |
| `sql/<name>/entry/<index number>/<values>/<primary key>` | other index, or a NULL: the same |

Values in keys are text that sorts like them (`documents.encoding`). So the rows with equal first
columns, or with a next column between two values, are one range of keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from streamydb.client import first_behind
from streamydb.limits import KEY_BYTES_MAX
from streamydb_layers.documents.encoding import AFTER, Scalar, bracket, encode
from streamydb_layers.tables.errors import DataRefusedError
from streamydb_layers.tables.schema import Index, Row, Table


class KeyRange(NamedTuple):
    """Keys from ``start`` on and before ``end``."""

    start: str
    end: str


class Bounds(NamedTuple):
    """Bounds of a column as keys have it; None: no bound."""

    lower: Scalar = None
    lower_open: bool = False
    upper: Scalar = None
    upper_open: bool = False


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one database of tables."""

    name: str

    @property
    def prefix(self) -> str:
        """With what all keys begin."""
        return f"sql/{self.name}/"

    @property
    def number(self) -> str:
        """The key of the last number."""
        return f"{self.prefix}number"

    def table(self, name: str) -> str:
        """The key of the definition of a table or view."""
        return f"{self.prefix}table/{name.lower()}"

    def tables(self) -> KeyRange:
        """The keys of all definitions."""
        return KeyRange(f"{self.prefix}table/", f"{self.prefix}table0")

    def index(self, name: str) -> str:
        """The key of an index's table."""
        return f"{self.prefix}index/{name.lower()}"

    def identity(self, table: Table) -> str:
        """The key of the last number of a row."""
        return f"{self.prefix}identity/{table.number}"

    def rows(self, table: Table) -> str:
        """With what the keys of rows begin."""
        return f"{self.prefix}row/{table.number}/"

    def row(self, table: Table, primary_key: str) -> str:
        """The key of a row."""
        return _checked(self.rows(table) + primary_key, table.name)

    def entries(self, index: Index) -> str:
        """With what the entries of an index begin."""
        return f"{self.prefix}entry/{index.number}/"

    def entry(self, table: Table, index: Index, row: Row, primary_key: str) -> str:
        """The key of a row's entry in an index; NULL is different from NULL."""
        alone = index.unique and not any(row[name] is None for name in index.columns)
        behind = "" if alone else f"/{primary_key}"
        return _checked(
            self.entries(index) + encoded(table, index.columns, row) + behind, index.name
        )


def encoded(table: Table, columns: Sequence[str], row: Row) -> str:
    """The values of columns as text that sorts like them."""
    values = [column.kind.key(row[name]) for name in columns if (column := table.column(name))]
    return encode(values, [False] * len(values))


def part(prefix: str, equal: Sequence[Scalar], bounds: Bounds | None) -> KeyRange:
    """The keys behind a prefix with these first values, and the next one within bounds."""
    base = prefix + encode(equal, [False] * len(equal))
    if bounds is None:
        return KeyRange(base, base + AFTER)
    start, end = bracket(bounds.upper if bounds.lower is None else bounds.lower, descending=False)
    if bounds.lower is not None:
        start = encode([bounds.lower], [False]) + (AFTER if bounds.lower_open else "")
    if bounds.upper is not None:
        end = encode([bounds.upper], [False]) + ("" if bounds.upper_open else AFTER)
    return KeyRange(base + start, base + end)


def fits(key: str) -> bool:
    """Return True if a text is not too long for a key."""
    return len(key.encode()) <= KEY_BYTES_MAX


def fitting(keys: KeyRange) -> KeyRange | None:
    """A range with all keys of another one, and bounds that are not too long; None: it has none.

    A constant of a statement may be longer than all that keys hold, or below another one.
    """
    start, end = keys
    if start >= end:
        return None
    start = start if fits(start) else _cut(start)
    end = end if fits(end) else first_behind(_cut(end)) or end
    return KeyRange(start, end)


def _cut(key: str) -> str:
    """The beginning of a key; with a greater last character it is not too long either."""
    return key.encode()[: KEY_BYTES_MAX - 1].decode(errors="ignore")


def _checked(key: str, of: str) -> str:
    size = len(key.encode())
    if size > KEY_BYTES_MAX:
        raise DataRefusedError(
            f"The values in {of} make a key of {size} bytes; {KEY_BYTES_MAX} is the most."
        )
    return key
