"""Indexes: the keys that a document has in them, and the range of keys that answers a query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from streamydb.limits import KEY_BYTES_MAX
from streamydb_layers.documents.changes import at_path
from streamydb_layers.documents.encoding import (
    AFTER,
    Scalar,
    bracket,
    encode,
    is_scalar,
    texts_with,
)
from streamydb_layers.errors import IndexValueTooLongError, InvalidArgumentError, UpdateError
from streamydb_layers.names import check_name

FIELDS_MAX = 8
"""Fields of one index."""

INDEXES_MAX = 32
"""Indexes of one collection."""


class KeyRange(NamedTuple):
    """Keys from ``start`` on and before ``end``."""

    start: str
    end: str


@dataclass(frozen=True, slots=True)
class IndexBounds:
    """The bounds of a query on an index.

    Attributes:
        equals: values of the first fields.
        ge, gt, le, lt: bounds of the next field.
        prefix: with what the text in the next field begins.
    """

    equals: Sequence[Scalar] = ()
    ge: Scalar = None
    gt: Scalar = None
    le: Scalar = None
    lt: Scalar = None
    prefix: str | None = None


@dataclass(frozen=True, slots=True)
class Index:
    """An index as the collection's schema has it.

    Attributes:
        name: what queries call it.
        number: never used again in this collection, so that nothing of a dropped index is seen.
        fields: dotted paths; a dash before one means descending.
        unique: whether no two documents may have the same values.
        ready: whether all documents are in it.
    """

    name: str
    number: int
    fields: tuple[str, ...]
    unique: bool
    ready: bool

    @property
    def paths(self) -> list[str]:
        """The fields without their directions."""
        return [field.removeprefix("-") for field in self.fields]

    @property
    def descending(self) -> list[bool]:
        """Tell for each field whether it is descending."""
        return [field.startswith("-") for field in self.fields]

    def key(self, prefix: str, document_id: str, document: Mapping[str, Any] | None) -> str | None:
        """The key of a document in this index; None if it has none.

        Only documents that have all fields are in it, each with null, a boolean, a number or text.

        Raises:
            IndexValueTooLongError: values and id do not fit in a key.
        """
        if document is None:
            return None
        values = [at_path(document, path, self) for path in self.paths]
        if not all(map(is_scalar, values)):
            return None
        try:
            encoded = encode(values, self.descending)
            key = f"{self.prefix(prefix)}{encoded}" + ("" if self.unique else f"/{document_id}")
            size = len(key.encode())
        except UnicodeEncodeError:
            raise UpdateError("A text is not Unicode.") from None
        if size > KEY_BYTES_MAX:
            raise IndexValueTooLongError(
                f"The values of index {self.name} make a key of {size} bytes; {KEY_BYTES_MAX} is "
                "the most."
            )
        return key

    def prefix(self, prefix: str) -> str:
        """With what all keys of this index begin."""
        return f"{prefix}index/{self.number}/"

    def range(self, prefix: str, bounds: IndexBounds) -> KeyRange:
        """The keys that a query wants, in the order of the index.
        Raises InvalidArgumentError: it makes no sense for this index.
        """
        if isinstance(bounds.equals, str):
            raise InvalidArgumentError(f"equals is a list of values: [{bounds.equals!r}].")
        equals = list(bounds.equals)
        if not all(map(is_scalar, equals)) or len(equals) > len(self.fields):
            raise InvalidArgumentError(f"Index {self.name} has the fields {', '.join(self.fields)}")
        base = self.prefix(prefix) + encode(equals, self.descending)
        start, end = self._next(bounds, len(equals))
        return KeyRange(base + start, base + end)

    def _next(self, bounds: IndexBounds, place: int) -> tuple[str, str]:
        """The range of the field after those that are equal."""
        given = [b for b in (bounds.ge, bounds.gt, bounds.le, bounds.lt) if b is not None]
        if not given and bounds.prefix is None:
            return "", AFTER
        if place >= len(self.fields):
            raise InvalidArgumentError(f"Index {self.name} has no field after those that are equal")
        down = self.descending[place]
        if bounds.prefix is not None:
            if given or not isinstance(bounds.prefix, str):
                raise InvalidArgumentError("Give a prefix (text), or bounds, not both.")
            return texts_with(bounds.prefix, descending=down)
        return _between(bounds, given, down=down)

    @classmethod
    def of(cls, name: str, stored: Mapping[str, Any]) -> Self:
        """The index as the schema has it."""
        return cls(
            name, stored["number"], tuple(stored["fields"]), stored["unique"], stored["ready"]
        )

    def stored(self) -> dict[str, Any]:
        """Return the part of it that the schema keeps."""
        return {"number": self.number, "fields": list(self.fields),
                "unique": self.unique, "ready": self.ready}  # fmt: skip


def _between(bounds: IndexBounds, given: Sequence[Scalar], *, down: bool) -> tuple[str, str]:
    """The range of encodings between two values, which must be of kinds that compare."""
    if not all(map(is_scalar, given)):
        raise InvalidArgumentError("Bounds are texts, numbers or booleans.")
    if len({bracket(value, descending=down) for value in given}) > 1:
        raise InvalidArgumentError("Bounds of different types: no value is between them.")
    if (bounds.ge is not None and bounds.gt is not None) or (
        bounds.le is not None and bounds.lt is not None
    ):
        raise InvalidArgumentError("Give ge or gt, and le or lt, not both.")
    start, end = bracket(given[0], descending=down)
    lower = bounds.ge if bounds.gt is None else bounds.gt
    upper = bounds.le if bounds.lt is None else bounds.lt
    if down:
        lower, upper = upper, lower
    with_lower = (bounds.lt if down else bounds.gt) is None
    with_upper = (bounds.gt if down else bounds.lt) is None
    if lower is not None:
        start = encode([lower], [down]) + ("" if with_lower else AFTER)
    if upper is not None:
        end = encode([upper], [down]) + (AFTER if with_upper else "")
    return start, end


@dataclass(frozen=True, slots=True)
class CollectionIndexes:
    """The indexes of a collection.

    Attributes:
        indexes: name -> index.
        number: the next index's number.
    """

    indexes: dict[str, Index]
    number: int

    @classmethod
    def of(cls, stored: Mapping[str, Any] | None) -> Self:
        """The schema under a collection's key; None: none was made yet."""
        if stored is None:
            return cls({}, 0)
        found = {name: Index.of(name, index) for name, index in stored["indexes"].items()}
        return cls(found, stored["number"])

    def stored(self) -> dict[str, Any]:
        """The value for the collection's key."""
        found = {name: index.stored() for name, index in self.indexes.items()}
        return {"indexes": found, "number": self.number}

    def with_new(self, name: str, fields: Sequence[str], *, unique: bool) -> Self:
        """The schema with one more index, which is not ready.
        Raises InvalidArgumentError, InvalidNameError: it cannot be.
        """
        check_name(name)
        if isinstance(fields, str):
            raise InvalidArgumentError(f"The fields of an index are a list: [{fields!r}].")
        paths = [field.removeprefix("-") for field in fields if isinstance(field, str)]
        if not 1 <= len(paths) == len(set(paths)) == len(fields) <= FIELDS_MAX or not all(paths):
            raise InvalidArgumentError(f"An index has 1 to {FIELDS_MAX} different fields.")
        if len(self.indexes) >= INDEXES_MAX:
            raise InvalidArgumentError(f"A collection has at most {INDEXES_MAX} indexes.")
        made = Index(name, self.number, tuple(fields), unique, ready=False)
        return type(self)({**self.indexes, name: made}, self.number + 1)

    def with_ready(self, index: Index) -> Self:
        """The schema with an index ready."""
        ready = Index(index.name, index.number, index.fields, index.unique, ready=True)
        return type(self)({**self.indexes, index.name: ready}, self.number)

    def without(self, name: str) -> Self:
        """The schema without an index."""
        left = {other: index for other, index in self.indexes.items() if other != name}
        return type(self)(left, self.number)
