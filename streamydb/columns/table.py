"""Tables of columns, and byte strings of any length; `encoding` is their binary form.

Each kind of table is a class of its own, a `ColumnTable`: its fields are its columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar, get_args, get_origin

import msgspec
import numpy as np
import numpy.typing as npt

from streamydb.columns.jit import copy_bytes, kernel
from streamydb.errors import RecordError

__all__ = [
    "Array",
    "Bytes",
    "ChildRows",
    "ColumnTable",
    "Ragged",
    "Texts",
    "chunk_bounds",
    "expand",
    "starts_of",
]  # fmt: skip

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]


@kernel
def _take_ragged(data: Bytes, offsets: Offsets, index: Offsets) -> tuple[Bytes, Offsets]:
    out_offsets = np.empty(len(index) + 1, np.int64)
    out_offsets[0] = 0
    for i in range(len(index)):
        out_offsets[i + 1] = out_offsets[i] + offsets[index[i] + 1] - offsets[index[i]]
    out = np.empty(out_offsets[-1], np.uint8)
    for i in range(len(index)):
        at = out_offsets[i]
        copy_bytes(out, at, data, offsets[index[i]], out_offsets[i + 1] - at)
    return out, out_offsets


@kernel
def _expand(starts: Offsets, counts: Offsets, index: Offsets) -> Offsets:
    total = 0
    for i in index:
        total += counts[i]
    out = np.empty(total, np.int64)
    at = 0
    for i in index:
        for j in range(counts[i]):
            out[at] = starts[i] + j
            at += 1
    return out


def expand(starts: Array, counts: Array) -> Offsets:
    """The positions of runs: ``starts[i]`` and the ``counts[i] - 1`` after it; in order of i."""
    index = np.arange(len(starts))
    return _expand(starts.astype(np.int64), counts.astype(np.int64), index)


def starts_of(counts: Array) -> Offsets:
    """Exclusive prefix sums of ``counts`` with the total at the end; shape (n + 1,), int64."""
    out = np.zeros(len(counts) + 1, np.int64)
    counts.cumsum(out=out[1:])
    return out


class Texts(NamedTuple):
    """A `Ragged` as kernels take it: text i is ``data[offsets[i] : offsets[i + 1]]``."""

    data: Bytes
    offsets: Offsets


@dataclass(slots=True)
class Ragged:
    """``n`` byte strings in one buffer: element i is ``data[offsets[i]:offsets[i + 1]]``."""

    data: Bytes
    offsets: Offsets

    @classmethod
    def of(cls, values: Sequence[bytes]) -> Ragged:
        """Build from a sequence of byte strings."""
        lengths = np.fromiter(map(len, values), np.int64, len(values))
        return cls(np.frombuffer(bytearray().join(values), np.uint8), starts_of(lengths))

    @classmethod
    def empty(cls, n: int = 0) -> Ragged:
        """``n`` empty strings."""
        return cls(np.empty(0, np.uint8), np.zeros(n + 1, np.int64))

    @classmethod
    def concat(cls, parts: Sequence[Ragged]) -> Ragged:
        """All elements of ``parts``, in order."""
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return cls.empty()
        data = np.concatenate([p.data[p.offsets[0] : p.offsets[-1]] for p in parts])
        return cls(data, starts_of(np.concatenate([p.lengths() for p in parts])))

    def __len__(self) -> int:
        """The number of strings."""
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> bytes:
        """Element ``i`` as bytes."""
        return self.data[self.offsets[i] : self.offsets[i + 1]].tobytes()

    def texts(self) -> Texts:
        """Itself as kernels take it."""
        return Texts(self.data, self.offsets)

    def tolist(self) -> list[bytes]:
        """All elements as a list of bytes."""
        raw = self.data.tobytes()
        bounds = self.offsets.tolist()
        return [raw[a:b] for a, b in pairwise(bounds)]

    def lengths(self) -> Offsets:
        """The length of every element in bytes; shape (n,)."""
        return self.offsets[1:] - self.offsets[:-1]

    def part(self, start: int, end: int) -> Ragged:
        """The elements from ``start`` up to ``end``; shares the buffer."""
        return Ragged(self.data, self.offsets[start : end + 1])

    def take(self, index: Array) -> Ragged:
        """The elements at ``index``, in that order."""
        return Ragged(*_take_ragged(self.data, self.offsets, index.astype(np.int64, copy=False)))


Rows = TypeVar("Rows", bound="ColumnTable")


class ChildRows(NamedTuple, Generic[Rows]):
    """The rows of a table that belong to the rows of another: row i has ``counts[i]`` of them."""

    counts: Array
    rows: Rows


_STORED: Final = {"partition": "part", "offset": "off", "ts_ms": "ts", "append_ms": "append"}
"""The names that columns have in blocks, where they differ from those of the fields."""


class ColumnTable(msgspec.Struct, frozen=True, eq=False, rename=_STORED):
    """A table of n rows.

    Each field is a column (an array of shape (n,)), a column of texts (`Ragged`), or `ChildRows`.
    A field may be None where its type says so: then the table does not have it. The first field is
    always there, and no child.
    """

    def __len__(self) -> int:
        """The number of rows."""
        return len(getattr(self, self.__struct_fields__[0]))

    def text_bytes(self) -> Offsets:
        """Bytes of the texts of each row, without its children; shape (n,)."""
        total = np.zeros(len(self), np.int64)
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, Ragged):
                total += value.lengths()
        return total

    def take(self, index: Array) -> Self:
        """The rows at ``index``, in that order, with their children."""
        index = np.ascontiguousarray(index, np.int64)
        return type(self)(*[_taken(getattr(self, name), index) for name in self.__struct_fields__])

    def part(self, start: int, end: int) -> Self:
        """The rows from ``start`` up to ``end``, with their children; shares the arrays."""
        names = self.__struct_fields__
        return type(self)(*[_cut(getattr(self, name), start, end) for name in names])

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """The rows of ``parts``, in order; at least one part.

        All have the same columns. A part that lacks a child that another one has, has no rows of
        it.
        """
        if len(parts) == 1:
            return parts[0]
        return cls(*[_joined(parts, field) for field in cls.__struct_fields__])

    def flatten(self, prefix: str = "") -> dict[str, Array]:
        """All arrays by path, as `encoding.pack` takes them."""
        arrays: dict[str, Array] = {}
        for field in _fields(type(self)):
            value, path = getattr(self, field.name), prefix + field.stored
            if isinstance(value, Ragged):
                base = value.offsets[0]
                arrays[f"{path}$"] = value.data[base : value.offsets[-1]]
                arrays[f"{path}#"] = value.offsets - base
            elif isinstance(value, ChildRows):
                arrays[f"{path}*"] = value.counts
                arrays.update(value.rows.flatten(f"{path}."))
            elif value is not None:
                arrays[path] = value
        return arrays

    @classmethod
    def unflatten(cls, arrays: Mapping[str, Array], prefix: str = "") -> Self:
        """The table whose arrays were flattened under ``prefix``.

        Raises:
            RecordError: one of them is missing.
        """
        return cls(**{field.name: _found(field, arrays, prefix) for field in _fields(cls)})


def _taken(value: Any, index: Offsets) -> Any:
    if isinstance(value, np.ndarray):
        return value[index]
    if isinstance(value, Ragged):
        return value.take(index)
    if value is None:
        return None
    counts, rows = value
    chosen = _expand(starts_of(counts), counts.astype(np.int64, copy=False), index)
    return ChildRows(counts[index], rows.take(chosen))


def _cut(value: Any, start: int, end: int) -> Any:
    if isinstance(value, np.ndarray):
        return value[start:end]
    if isinstance(value, Ragged):
        return value.part(start, end)
    if value is None:
        return None
    counts, rows = value
    first = int(counts[:start].sum())
    return ChildRows(counts[start:end], rows.part(first, first + int(counts[start:end].sum())))


def _joined(parts: Sequence[ColumnTable], name: str) -> Any:
    values = [getattr(part, name) for part in parts]
    first = values[0]
    if isinstance(first, np.ndarray):
        return np.concatenate(values)
    if isinstance(first, Ragged):
        return Ragged.concat(values)
    there = [value for value in values if value is not None]
    if not there:
        return None
    counts = [
        np.zeros(len(part), np.int64) if value is None else value.counts
        for part, value in zip(parts, values, strict=True)
    ]
    rows = [value.rows for value in there]
    return ChildRows(np.concatenate(counts), type(rows[0]).concat(rows))


class _Field(NamedTuple):
    """A field of a table: its name there and in blocks, and how it is stored.

    ``kind``: an array, `Ragged` or `ChildRows`; ``rows``: the table of a child.
    """

    name: str
    stored: str
    kind: type
    rows: type[ColumnTable]
    optional: bool


@cache
def _fields(table: type[ColumnTable]) -> list[_Field]:
    """Return the fields in the order in which they are stored: columns, texts, children."""
    found = []
    for each in msgspec.structs.fields(table):
        named = [kind for kind in get_args(each.type) if kind is not type(None)]
        optional = type(None) in get_args(each.type)
        kind = named[0] if optional else each.type
        of, rows = get_origin(kind) or kind, ColumnTable
        if of is ChildRows:
            (rows,) = get_args(kind)
        found.append(_Field(each.name, each.encode_name, of, rows, optional))
    return sorted(found, key=lambda field: (field.kind is Ragged) + 2 * (field.kind is ChildRows))


def _found(field: _Field, arrays: Mapping[str, Array], prefix: str) -> Any:
    """Return a field of a table from its arrays."""
    path = prefix + field.stored
    first = path + _MARKS.get(field.kind, "")
    if first not in arrays:
        if field.optional:
            return None
        raise RecordError(f"a table lacks the array {first}")
    if field.kind is Ragged:
        return Ragged(arrays[first], arrays[f"{path}#"])
    if field.kind is ChildRows:
        return ChildRows(arrays[first], field.rows.unflatten(arrays, f"{path}."))
    return arrays[first]


_MARKS: Final = {Ragged: "$", ChildRows: "*"}
"""Behind the name of a field, the mark of its first array."""


def chunk_bounds(
    sizes: npt.NDArray[np.int32] | npt.NDArray[np.int64], bytes_max: int, rows_max: int
) -> list[tuple[int, int]]:
    """Cut rows of these sizes into runs of at most so many bytes and rows; at least one row each.
    """
    ends = np.cumsum(sizes, dtype=np.int64)
    bounds, start = [], 0
    while start < len(sizes):
        base = ends[start] - sizes[start]
        end = max(start + 1, int(np.searchsorted(ends, base + bytes_max, "right")))
        bounds.append((start, min(end, start + rows_max)))
        start = bounds[-1][1]
    return bounds
