"""The message with which the parser sends records of the log to a shard.

All shards get the same records, each with a part that only the home of an id needs: payloads, and
the half of the hash of an id that tells ids apart. The shared part is narrowed once for all shards,
and a shard that finds it unchanged need not open it again (`key_processor.inbox`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import msgspec
import numpy as np
import numpy.typing as npt

from streamydb.errors import RecordError
from streamydb.frames.encoding import Narrowed, Part, StoredArrays, narrowed, pack_narrowed
from streamydb.frames.program import ProgramSteps
from streamydb.frames.protocol import FORMAT, Message
from streamydb.frames.record_rows import CompiledRecords, HomeRows, LastRead, SharedRows
from streamydb.frames.table import Bytes, ChildRows, ColumnTable, Ragged
from streamydb.records.formats import UNREADABLE

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]


class SharedRecords:
    """The part of records that all shards get: a table, or how it lies in a block.

    Attributes:
        stored: how it lies in a block; None: it has not come in one.
    """

    __slots__ = ("_narrowed", "_rows", "stored")

    def __init__(self, rows: SharedRows | None, stored: StoredArrays | None = None) -> None:
        self.stored = stored
        self._rows = rows
        self._narrowed: Narrowed | None = None

    def rows(self) -> SharedRows:
        """The table. Raises RecordError: the block is damaged."""
        if self._rows is None:
            if self.stored is None:
                raise RecordError("shared records are neither a table nor in a block")
            return SharedRows.unflatten(self.stored.arrays())
        return self._rows

    def narrowed(self, *, hashes: bool) -> Narrowed:
        """The table as it lies in a block; made once, so that all blocks share the bytes.

        ``hashes``: those of the keys, too. To move them costs more than to compute them again,
        unless all shards read one and the same part.
        """
        if self._narrowed is None:
            arrays = self.rows().flatten()
            if not hashes:
                del arrays["keys.hash"]
            narrow = narrowed(arrays)
            narrow.stored = [b"".join(narrow.stored)]
            self._narrowed = narrow
        return self._narrowed


class _StoredHome(ColumnTable, frozen=True):
    """The home part as it lies in a block: `HomeRows`, and ``id1`` of these records."""

    id1: Hashes
    code: Bytes
    deadline: Ints
    payload: Hashes
    id: Ragged
    raw: Ragged
    steps: ChildRows[ProgramSteps]


class LogRecords(Message, frozen=True):
    """The parser sends a shard records of the log.

    ``shared``: as all shards know them. ``id1``: of those whose home the shard is, in order.
    ``home``: the rest of these. ``last``: the last record of each partition among all. ``hashes``:
    see `SharedRecords.narrowed`.
    """

    KIND: ClassVar[str] = "records"

    shared: SharedRecords
    id1: Hashes
    home: ChildRows[HomeRows]
    last: list[LastRead]
    hashes: bool = False

    def header(self) -> dict[str, Any]:
        return {"kind": self.KIND, "format": FORMAT, "last": self.last}

    def pieces(self) -> list[Part]:
        """The message as bytes in pieces; the first two are the header and the shared part."""
        stored = self.home.rows.cast(_StoredHome, id1=self.id1)
        own_part = narrowed({"home*": self.home.counts, **stored.flatten("home.")})
        return pack_narrowed([self.shared.narrowed(hashes=self.hashes), own_part], **self.header())

    @classmethod
    def opened(cls, header: Mapping[str, Any], stored: StoredArrays) -> Self:
        """The message of a block of this kind; its shared part is not decoded yet.
        Raises RecordError: the block is damaged.
        """
        try:
            last = msgspec.convert(header.get("last", []), list[LastRead])
        except UNREADABLE as error:
            raise RecordError(f"a block of records cannot be read: {error}") from error
        shared, own_part = stored.divided("home")
        arrays = own_part.arrays()
        home = _StoredHome.unflatten(arrays, "home.")
        rows = ChildRows(arrays["home*"], home.cast(HomeRows))
        return cls(SharedRecords(None, shared), home.id1, rows, last)

    def known(self) -> tuple[Hashes, ChildRows[HomeRows]]:
        """The part of all records that one shard knows: ``id1``, 0 where the home is elsewhere."""
        if len(self.id1) == len(self.home.counts):
            return self.id1, self.home
        id1 = np.zeros(len(self.home.counts), np.uint64)
        id1[np.flatnonzero(self.home.counts)] = self.id1
        return id1, self.home


def records_for(
    records: CompiledRecords, shards: int, last: Sequence[LastRead] = (), *, hashes: bool = False
) -> Iterator[LogRecords]:
    """Yield the message for each shard, in order; arguments as the fields of `LogRecords`."""
    shared, last_reads = SharedRecords(records.shared()), list(last)
    payloads = records.home.rows
    if shards == 1:
        yield LogRecords(shared, records.id1, records.home, last_reads, hashes)
        return
    homes = records.id0 % np.uint64(shards)
    for shard in range(shards):
        is_of_shard = homes == np.uint64(shard)
        rows = np.flatnonzero(is_of_shard)
        home = ChildRows(is_of_shard.astype(np.int64), payloads.take(rows))
        yield LogRecords(shared, records.id1[rows], home, last_reads, hashes)
