"""Create and drop indexes of a collection that is in use.

An index is first put into the schema, not ready. Every write after that keeps it: writes that were
under way read another schema, so they conflict and begin again. Then the documents that there were
are put into it in chunks, each a transaction that reads them anew. When all are in it, it is ready.
A build that was cut off goes on when it is asked for again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from streamydb.client import ConflictError, SnapshotGoneError
from streamydb_layers.documents.core import CollectionCore
from streamydb_layers.documents.indexes import CollectionIndexes, Index
from streamydb_layers.errors import (
    IndexNotReadyError,
    IndexValueTooLongError,
    InvalidArgumentError,
    UniqueViolationError,
)
from streamydb_layers.steps import AttemptView, Body, Flow, read, run, scan

_SCANNED: Final = 500
_CHUNK: Final = 50
_ATTEMPTS: Final = 3


class IndexedCore(CollectionCore):
    """A collection whose indexes can be made and dropped."""

    def create_index(self, name: str, fields: Sequence[str], *, unique: bool = False) -> Flow[bool]:
        """Make an index and put all documents into it, while others go on writing.

        Args:
            name: what queries call it.
            fields: dotted paths; a dash before one means descending.
            unique: whether no two documents may have the same values.

        Returns:
            Whether there was something to do.

        Raises:
            InvalidArgumentError: there is another index of this name; or the fields make no sense.
            UniqueViolationError: two documents have the same values; the index is dropped again.
            IndexValueTooLongError: the values of a document do not fit; it is dropped again.
            IndexNotReadyError: somebody else dropped it meanwhile.
        """

        def announce(view: AttemptView) -> Body[Index]:
            schema = self.schema((yield [self.schema_key])[self.schema_key])
            if name in schema.indexes:
                return _same(schema.indexes[name], fields, unique=unique)
            schema = schema.with_new(name, fields, unique=unique)
            view.put(self.schema_key, schema.stored())
            return schema.indexes[name]

        index = yield from run(announce)
        if index.ready:
            return False
        try:
            yield from self._fill(index)
        except (UniqueViolationError, IndexValueTooLongError):
            yield from self._drop(name, index.number)
            raise
        yield from run(lambda view: self._announce_ready(view, index))
        return True

    def drop_index(self, name: str) -> Flow[bool]:
        """Remove an index; tell whether there was one."""
        return self._drop(name, None)

    def _drop(self, name: str, number: int | None) -> Flow[bool]:
        """Remove an index from the schema, then its entries, which no query sees any more."""

        def forget(view: AttemptView) -> Body[Index | None]:
            schema = self.schema((yield [self.schema_key])[self.schema_key])
            found = schema.indexes.get(name)
            if found is None or number not in (None, found.number):
                return None
            view.put(self.schema_key, schema.without(name).stored())
            return found

        index = yield from run(forget)
        if index is None:
            return False
        prefix = index.prefix(self.prefix)
        seq, keys = yield from self._next(prefix, None, None)
        while keys:
            yield from run(partial(_delete, keys=keys))
            seq, keys = yield from self._next(prefix, seq, keys[-1])
        return True

    def _fill(self, index: Index) -> Flow[None]:
        """Put the documents of now into an index; those of later come with their writes."""
        prefix = f"{self.prefix}data/"
        seq, keys = yield from self._next(prefix, None, None)
        while keys:
            ids = [key.removeprefix(prefix) for key in keys]
            for place in range(0, len(ids), _CHUNK):
                yield from self._enter(index, ids[place : place + _CHUNK])
            seq, keys = yield from self._next(prefix, seq, keys[-1])

    def _next(self, prefix: str, seq: int | None, last: str | None) -> Flow[tuple[int, list[str]]]:
        """The keys behind the last one, and the seq that shows them.

        That is a newer one when this one is not kept any more: what it shows besides was written
        after the index was announced, so it keeps the index.
        """
        while True:
            at = (yield from read([self.schema_key])).seq if seq is None else seq
            try:
                entries = yield from scan(prefix, at, start=last, limit=_SCANNED)
            except SnapshotGoneError:
                seq = None
            else:
                return at, [entry.key for entry in entries if entry.key != last]

    def _enter(self, index: Index, ids: list[str]) -> Flow[None]:
        """Put documents into an index in one transaction, or in halves if they are written to."""
        try:
            attempts = _ATTEMPTS if len(ids) > 1 else None
            yield from run(lambda view: self._entering(view, index, ids), attempts)
        except ConflictError:
            if len(ids) == 1:
                raise
            half = len(ids) // 2
            yield from self._enter(index, ids[:half])
            yield from self._enter(index, ids[half:])

    def _entering(self, view: AttemptView, index: Index, ids: list[str]) -> Body[None]:
        found = yield [self.schema_key, *map(self.key, ids)]
        self._check_building(self.schema(found[self.schema_key]), index)
        added: dict[str, str] = {}
        for each in ids:
            key = index.key(self.prefix, each, found[self.key(each)])
            if key is None:
                continue
            if added.setdefault(key, each) != each:
                raise UniqueViolationError(index.name, added[key])
        holders = (yield list(added)) if added else {}
        for key, each in added.items():
            if holders[key] is None:
                view.put(key, each)
            elif holders[key] != each:
                raise UniqueViolationError(index.name, holders[key])

    def _announce_ready(self, view: AttemptView, index: Index) -> Body[None]:
        schema = self.schema((yield [self.schema_key])[self.schema_key])
        self._check_building(schema, index)
        view.put(self.schema_key, schema.with_ready(index).stored())

    def _check_building(self, schema: CollectionIndexes, index: Index) -> None:
        found = schema.indexes.get(index.name)
        if found is None or found.number != index.number:
            raise IndexNotReadyError(f"Index {index.name} was dropped while it was being built.")


def _same(index: Index, fields: Sequence[str], *, unique: bool) -> Index:
    """The index that is there, if it is what is wanted."""
    if index.fields != tuple(fields) or index.unique != unique:
        raise InvalidArgumentError(
            f"There is an index {index.name} with other fields; drop_index removes it."
        )
    return index


def _delete(view: AttemptView, keys: list[str]) -> Body[None]:
    """Delete keys, whatever their values."""
    for key in keys:
        view.delete(key)
    yield from ()
