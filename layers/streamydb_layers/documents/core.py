"""Reading and writing documents: bodies of transactions, which keep the indexes, and queries.

A write reads the collection's schema with the document, so it commits only if the indexes that it
keeps are those that there are, and only if the document is still the one whose index entries it
moves. All else is left to `run`: retries, and other documents in the same transaction.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from streamydb.client import Entry, new_id
from streamydb_layers.documents.changes import Document, Update, merge_patch
from streamydb_layers.documents.encoding import Scalar
from streamydb_layers.documents.indexes import CollectionIndexes, Index, IndexBounds, KeyRange
from streamydb_layers.errors import (
    DocumentNotFoundError,
    DuplicateIdError,
    IndexNotReadyError,
    InvalidArgumentError,
    UniqueViolationError,
    UpdateError,
    told_by,
)
from streamydb_layers.names import check_id, check_name
from streamydb_layers.steps import AttemptView, Body, Flow, read, scan

PAGE_DOCUMENTS_MAX: Final = 1_000
"""Documents that one query returns."""


@dataclass(frozen=True, slots=True)
class Found:
    """A document as it was found.

    Attributes:
        id: its id.
        data: its fields.
        version: the seq of the transaction that wrote it.
        ts_ms: the commit timestamp of that transaction.
    """

    id: str
    data: Document
    version: int
    ts_ms: int


@dataclass(frozen=True, slots=True)
class Page:
    """Documents in the order of an index.

    Attributes:
        documents: what was found.
        cursor: finds more, at the same snapshot; None if there is no more.
        seq: the snapshot.
    """

    documents: list[Found]
    cursor: str | None
    seq: int


class CollectionCore:
    """A collection's bodies and flows."""

    def __init__(self, name: str) -> None:
        self.prefix = f"doc/{check_name(name)}/"
        self.schema_key = f"{self.prefix}schema"

    def insert(
        self, document: Mapping[str, Any], *, document_id: str | None = None
    ) -> Callable[[AttemptView], Body[str]]:
        """Add a document and return its id, which is made up unless it is given.
        Raises DuplicateIdError, UniqueViolationError: there is such a document; UpdateError: it is
        no object.
        """
        named = new_id() if document_id is None else document_id
        made = _object(document)

        def body(view: AttemptView) -> Body[str]:
            schema, before = yield from self.load(named)
            if before is not None:
                raise DuplicateIdError(f"There is a document {named!r} already.")
            yield from self.store(view, schema, named, None, made)
            return named

        return body

    def put(
        self, document_id: str, document: Mapping[str, Any]
    ) -> Callable[[AttemptView], Body[None]]:
        """Store a document, whether there was one or not; raises as `insert`."""
        made = _object(document)

        def body(view: AttemptView) -> Body[None]:
            schema, before = yield from self.load(document_id)
            yield from self.store(view, schema, document_id, before, made)

        return body

    def replace(
        self, document_id: str, document: Mapping[str, Any]
    ) -> Callable[[AttemptView], Body[None]]:
        """Replace a document that is there; raises as `modify`."""
        made = _object(document)

        def body(view: AttemptView) -> Body[None]:
            yield from self.modify(document_id, lambda _: made)(view)

        return body

    def patch(
        self, document_id: str, patch: Mapping[str, Any]
    ) -> Callable[[AttemptView], Body[Document]]:
        """Apply a JSON merge patch (RFC 7396): null removes a field; raises as `modify`."""
        wanted = _object(patch)
        return self.modify(document_id, lambda document: merge_patch(document, wanted))

    def update(
        self,
        document_id: str,
        *,
        set: Mapping[str, Any] | None = None,  # noqa: A002 - the field's name for it
        inc: Mapping[str, float] | None = None,
        push: Mapping[str, Any] | None = None,
        unset: Iterable[str] = (),
    ) -> Callable[[AttemptView], Body[Document]]:
        """Change fields by dotted paths; raises as `modify`.

        Args:
            document_id: which document.
            set: path -> value.
            inc: path -> number to add.
            push: path -> value to append to a list.
            unset: paths to remove.
        """
        wanted = Update(set or {}, inc or {}, push or {}, unset)
        return self.modify(document_id, wanted.apply)

    def modify(
        self, document_id: str, change: Callable[[Document], Mapping[str, Any]]
    ) -> Callable[[AttemptView], Body[Document]]:
        """Store what a function makes of a document, and return it.

        Args:
            document_id: which document.
            change: may be called several times, so it must have no other effect.

        Raises:
            DocumentNotFoundError: there is none.
            UniqueViolationError: another document has the new values in a unique index.
            IndexValueTooLongError: they do not fit in an index.
            UpdateError: the update does not fit the document.
        """

        def body(view: AttemptView) -> Body[Document]:
            schema, before = yield from self.load(document_id)
            if before is None:
                raise DocumentNotFoundError(f"There is no document {document_id!r}.")
            after = _object(change(_copy(before)))
            yield from self.store(view, schema, document_id, before, after)
            return after

        return body

    def delete(self, document_id: str) -> Callable[[AttemptView], Body[bool]]:
        """Remove a document; tell whether there was one."""

        def body(view: AttemptView) -> Body[bool]:
            schema, before = yield from self.load(document_id)
            if before is not None:
                yield from self.store(view, schema, document_id, before, None)
            return before is not None

        return body

    def look(self, document_id: str) -> Callable[[AttemptView], Body[Document | None]]:
        """Return a document; None if there is none."""
        key = self.key(document_id)

        def body(_: AttemptView) -> Body[Document | None]:
            found: Document | None = (yield [key])[key]
            return found

        return body

    def get(self, document_id: str, *, at: int | None = None) -> Flow[Found | None]:
        """Return a document; None if there is none.

        Args:
            document_id: which document.
            at: the seq whose state to show, instead of a fresh one.
        """
        key = self.key(document_id)
        entry = (yield from read([key], at=at)).entries[key]
        return self._found(entry) if entry.exists else None

    def find(
        self,
        index: str | None = None,
        *,
        equals: Sequence[Scalar] = (),
        ge: Scalar = None,
        gt: Scalar = None,
        le: Scalar = None,
        lt: Scalar = None,
        prefix: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
        at: int | None = None,
    ) -> Flow[Page]:
        """Find documents in the order of an index, at one snapshot.

        Args:
            index: which one; by default all documents, in the order of their ids.
            equals: values of the first fields of the index.
            ge: a bound of the next field: only values like it, and not below.
            gt: the same, and above.
            le: the same, and not above.
            lt: the same, and below.
            prefix: with what the text in the next field begins.
            limit: most documents, up to `PAGE_DOCUMENTS_MAX`.
            cursor: of the page before; all else must be the same.
            at: the seq whose state to show, instead of a fresh one.

        Raises:
            IndexNotReadyError: there is no such index, or not yet.
            InvalidArgumentError: this cannot be asked of the index; or a cursor of another query.
            SnapshotGoneError: the cursor's snapshot is not kept any more.
        """
        if not 1 <= limit <= PAGE_DOCUMENTS_MAX:
            raise InvalidArgumentError(f"A page has 1 to {PAGE_DOCUMENTS_MAX} documents.")
        seq, after = (at, None) if cursor is None else _opened(cursor)
        shown = yield from read([self.schema_key], at=seq)
        bounds = IndexBounds(equals, ge, gt, le, lt, prefix)
        keys = self._range(self.schema(shown[self.schema_key]), index, bounds)
        if after is not None and not keys.start <= after < keys.end:
            raise InvalidArgumentError("The cursor belongs to another query.")
        entries = yield from scan(
            self.prefix, shown.seq, start=after or keys.start, end=keys.end, limit=limit + 2
        )
        entries = [entry for entry in entries if entry.key != after]
        more = _cursor(shown.seq, entries[limit - 1].key) if len(entries) > limit else None
        found = yield from self._documents(index, entries[:limit], shown.seq)
        return Page(found, more, shown.seq)

    def indexes(self) -> Flow[dict[str, dict[str, Any]]]:
        """Return name -> fields, unique and ready of all indexes."""
        stored = (yield from read([self.schema_key]))[self.schema_key]
        return {
            name: {"fields": list(index.fields), "unique": index.unique, "ready": index.ready}
            for name, index in self.schema(stored).indexes.items()
        }

    def load(self, document_id: str) -> Body[tuple[CollectionIndexes, Document | None]]:
        """Read a document with the schema that its next version must keep."""
        key = self.key(document_id)
        found = yield [self.schema_key, key]
        return self.schema(found[self.schema_key]), found[key]

    def store(
        self,
        view: AttemptView,
        schema: CollectionIndexes,
        document_id: str,
        before: Document | None,
        after: Document | None,
    ) -> Body[None]:
        """Write a document (None: remove it) and move its index entries."""
        dropped: dict[str, Index] = {}
        added: dict[str, Index] = {}
        for index in schema.indexes.values():
            old = index.key(self.prefix, document_id, before)
            new = index.key(self.prefix, document_id, after)
            if old != new:
                dropped |= {} if old is None else {old: index}
                added |= {} if new is None else {new: index}
        unique = [key for key, index in [*dropped.items(), *added.items()] if index.unique]
        holders = (yield unique) if unique else {}
        for key, index in added.items():
            if holders.get(key) not in (None, document_id):
                raise UniqueViolationError(index.name, holders[key])
        for key in dropped:
            # While the index is built, the key may be another document's, with the same values.
            if holders.get(key, document_id) == document_id:
                view.delete(key)
        for key in added:
            view.put(key, document_id)
        if after is None:
            view.delete(self.key(document_id))
        else:
            view.put(self.key(document_id), after)

    def schema(self, stored: Any) -> CollectionIndexes:
        """The indexes in the value of the schema's key.
        Raises ForeignValueError: it is no schema.
        """
        with told_by(self.schema_key):
            return CollectionIndexes.of(stored)

    def key(self, document_id: str) -> str:
        """The key of a document."""
        return f"{self.prefix}data/{check_id(document_id)}"

    def _range(self, schema: CollectionIndexes, index: str | None, bounds: IndexBounds) -> KeyRange:
        if index is None:
            if bounds != IndexBounds(bounds.equals) or bounds.equals:
                raise InvalidArgumentError("Name the index that the bounds are for.")
            return KeyRange(f"{self.prefix}data/", f"{self.prefix}data0")
        found = schema.indexes.get(index)
        if found is None or not found.ready:
            what = "There is no index" if found is None else "Not all documents are in index yet:"
            raise IndexNotReadyError(f"{what} {index}; create_index makes it.")
        return found.range(self.prefix, bounds)

    def _documents(self, index: str | None, entries: list[Entry], seq: int) -> Flow[list[Found]]:
        """The documents that keys of an index stand for."""
        if index is None:
            return [self._found(entry) for entry in entries]
        keys = [self.key(entry.value) for entry in entries]
        shown = (yield from read(keys, at=seq)).entries if keys else {}
        return [self._found(shown[key]) for key in keys]

    def _found(self, entry: Entry) -> Found:
        named = entry.key.removeprefix(f"{self.prefix}data/")
        return Found(named, entry.value, entry.version, entry.ts_ms)


def _object(document: Any) -> Document:
    if not isinstance(document, Mapping):
        raise UpdateError("A document is an object, in Python a dict.")
    return dict(document)


def _copy(document: Document) -> Document:
    copied: Document = json.loads(json.dumps(document))
    return copied


def _cursor(seq: int, key: str) -> str:
    return base64.urlsafe_b64encode(json.dumps([seq, key]).encode()).decode()


def _opened(cursor: str) -> tuple[int, str]:
    """The snapshot of a cursor, and the key that its page ended with."""
    try:
        seq, key = json.loads(base64.urlsafe_b64decode(cursor))
        key.encode()
    except (binascii.Error, ValueError, TypeError, AttributeError, RecursionError):
        raise InvalidArgumentError("This is no cursor.") from None
    if not isinstance(seq, int) or isinstance(seq, bool) or seq < 0:
        raise InvalidArgumentError("This is no cursor.")
    return seq, key
