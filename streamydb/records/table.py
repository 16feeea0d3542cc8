"""The result of a query."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of a query over one snapshot; iterating gives the rows.

    Attributes:
        seq: the transaction after which this was the state.
        columns: the names of the columns.
        rows: the values, in the order of the columns; JSON values are decoded.
    """

    seq: int
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def dicts(self) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]
