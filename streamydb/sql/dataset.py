"""A snapshot as DuckDB sees it: an Arrow dataset that is read page by page, as often as needed.

DuckDB asks for a scanner for each use of the table, with the columns and the filter that it wants.
A stream of batches instead could be read only once: a table that is joined with itself would be
empty the second time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds

from streamydb.read_model.ports import Scannable, StoredEntry
from streamydb.records.ranges import ScanRange
from streamydb.sql.keyspace import ScanBounds, range_of

SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("value", pa.string(), nullable=False),
        pa.field("version", pa.int64(), nullable=False),
        pa.field("ts_ms", pa.int64(), nullable=False),
    ]
)

_PAGE_ROWS: Final = 4_096


class KeyValues(ds.Dataset):  # type: ignore[misc]
    """The keys of a snapshot that begin with one of some prefixes, of which none covers another.

    One thread at a time asks the snapshot, which stays its owner's to close.
    """

    def __init__(self, snapshot: Scannable, prefixes: Sequence[str] = ("",)) -> None:
        self._snapshot = snapshot
        self._prefixes = tuple(prefixes)
        self._lock = threading.Lock()
        self.rows = 0

    @property
    def schema(self) -> pa.Schema:
        return SCHEMA

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: Any = None,  # noqa: A002 - Arrow's name
        **_: Any,
    ) -> ds.Scanner:
        batches = self._batches(range_of(filter))
        wanted = None if columns is None else list(columns)
        return ds.Scanner.from_batches(batches, schema=SCHEMA, columns=wanted, filter=filter)

    def _batches(self, keys: ScanBounds) -> Iterator[pa.RecordBatch]:
        for prefix in self._prefixes:
            after: str | None = None
            while page := self._page(prefix, keys, after):
                yield _batch(page)
                after = page[-1].key

    def _page(self, prefix: str, keys: ScanBounds, after: str | None) -> Sequence[StoredEntry]:
        with self._lock:
            page_range = ScanRange(prefix, keys.start, keys.end, after)
            page = self._snapshot.scan(page_range, limit=_PAGE_ROWS)
            self.rows += len(page)
        return page


def _batch(page: Sequence[StoredEntry]) -> pa.RecordBatch:
    return pa.record_batch(
        [
            pa.array([row.key for row in page], pa.string()),
            pa.array([row.value for row in page], pa.binary()).cast(pa.string()),
            pa.array([row.version for row in page], pa.int64()),
            pa.array([row.ts_ms for row in page], pa.int64()),
        ],
        schema=SCHEMA,
    )
