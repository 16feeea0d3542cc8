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
from msgspec.structs import astuple

from streamydb.errors import RecordError
from streamydb.frames.jit import copy_bytes, kernel

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
        lengths = np.fromiter(map(len, values), np.int64, len(values))
        return cls(np.frombuffer(bytearray().join(values), np.uint8), starts_of(lengths))

    @classmethod
    def empty(cls, n: int = 0) -> Ragged:
        """``n`` empty strings."""
        return cls(np.empty(0, np.uint8), np.zeros(n + 1, np.int64))

    @classmethod
    def concat(cls, parts: Sequence[Ragged]) -> Ragged:
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return cls.empty()
        data = np.concatenate([p.data[p.offsets[0] : p.offsets[-1]] for p in parts])
        return cls(data, starts_of(np.concatenate([p.lengths() for p in parts])))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> bytes:
        return self.data[self.offsets[i] : self.offsets[i + 1]].tobytes()

    @property
    def size(self) -> int:
        """Bytes of all texts."""
        return int(self.offsets[-1] - self.offsets[0])

    def texts(self) -> Texts:
        return Texts(self.data, self.offsets)

    def tolist(self) -> list[bytes]:
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
        index = np.ascontiguousarray(index, np.int64)
        columns: list[Any] = []
        for value in astuple(self):
            if isinstance(value, Ragged):
                columns.append(value.take(index))
            elif isinstance(value, ChildRows):
                counts, rows = value
                starts = starts_of(counts)
                chosen = _expand(starts, counts.astype(np.int64, copy=False), index)
                columns.append(ChildRows(counts[index], rows.take(chosen)))
            else:
                columns.append(None if value is None else value[index])
        return type(self)(*columns)

    def part(self, start: int, end: int) -> Self:
        """The rows from ``start`` up to ``end``, with their children; shares the arrays."""
        cut: list[Any] = []
        for value in astuple(self):
            if isinstance(value, Ragged):
                cut.append(value.part(start, end))
            elif isinstance(value, ChildRows):
                counts, rows = value
                first, last = int(counts[:start].sum()), int(counts[:end].sum())
                cut.append(ChildRows(counts[start:end], rows.part(first, last)))
            else:
                cut.append(None if value is None else value[start:end])
        return type(self)(*cut)

    def cast(self, table: type[Rows], **columns: Any) -> Rows:
        """The rows as another kind of table, whose fields are of here or among ``columns``."""
        return table(*[
            columns[name] if name in columns else getattr(self, name)
            for name in table.__struct_fields__
        ])  # fmt: skip

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """The rows of ``parts``, in order; at least one part.

        All have the same columns. A part that lacks a child that another one has, has no rows of
        it.
        """
        if len(parts) == 1:
            return parts[0]
        joined: list[Any] = []
        for values in zip(*map(astuple, parts), strict=True):
            first = values[0]
            if isinstance(first, Ragged):
                joined.append(Ragged.concat(values))
            elif isinstance(first, np.ndarray):
                joined.append(np.concatenate(values))
            else:
                joined.append(_joined_children(parts, values))
        return cls(*joined)

    def flatten(self, prefix: str = "") -> dict[str, Array]:
        """All arrays by path, as `encoding.pack` takes them."""
        arrays: dict[str, Array] = {}
        values = astuple(self)
        for at, stored in _order(type(self)):
            value, path = values[at], prefix + stored
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
        Raises RecordError: one of them is missing.
        """
        values: list[Any] = []
        for first, path, rows, optional in _stored(cls, prefix):
            array = arrays.get(first)
            if array is None:
                if not optional:
                    raise RecordError(f"a table lacks the array {first}")
                values.append(None)
            elif first is path:
                values.append(array)
            elif rows is None:
                values.append(Ragged(array, arrays[f"{path}#"]))
            else:
                values.append(ChildRows(array, rows.unflatten(arrays, f"{path}.")))
        return cls(*values)


def _joined_children(parts: Sequence[ColumnTable], values: Sequence[Any]) -> Any:
    """Join children of tables, some of which may lack theirs."""
    present = [value for value in values if value is not None]
    if not present:
        return None
    counts = [
        np.zeros(len(part), np.int64) if value is None else value.counts
        for part, value in zip(parts, values, strict=True)
    ]
    rows = [value.rows for value in present]
    return ChildRows(np.concatenate(counts), type(rows[0]).concat(rows))


class _Field(NamedTuple):
    """A field of a table: its name in blocks, and how it is stored.

    ``kind``: an array, `Ragged` or `ChildRows`; ``rows``: the table of children.
    """

    stored: str
    kind: type
    rows: type[ColumnTable] | None
    optional: bool


@cache
def _fields(table: type[ColumnTable]) -> list[_Field]:
    fields = []
    for each in msgspec.structs.fields(table):
        kinds = [kind for kind in get_args(each.type) if kind is not type(None)]
        optional = type(None) in get_args(each.type)
        kind = kinds[0] if optional else each.type
        of = get_origin(kind) or kind
        rows = get_args(kind)[0] if of is ChildRows else None
        fields.append(_Field(each.encode_name, of, rows, optional))
    return fields


@cache
def _order(table: type[ColumnTable]) -> list[tuple[int, str]]:
    """Return the fields in the order in which they are stored: columns, texts, children."""
    fields = _fields(table)

    def rank(at: int) -> int:
        return (fields[at].kind is Ragged) + 2 * (fields[at].kind is ChildRows)

    return [(at, fields[at].stored) for at in sorted(range(len(fields)), key=rank)]


@cache
def _stored(
    table: type[ColumnTable], prefix: str
) -> list[tuple[str, str, type[ColumnTable] | None, bool]]:
    """Return of each field the path of its first array, its own path (the same one if it is a
    column), the table of its children, and whether it may be missing.
    """
    places = []
    for stored, kind, rows, optional in _fields(table):
        path = prefix + stored
        mark = _MARKS.get(kind)
        places.append((path if mark is None else path + mark, path, rows, optional))
    return places


_MARKS: Final = {Ragged: "$", ChildRows: "*"}
"""Behind the name of a field, the mark of its first array."""


def chunk_bounds(
    sizes: npt.NDArray[np.int32] | npt.NDArray[np.int64], bytes_max: int, rows_max: int
) -> list[tuple[int, int]]:
    """Cut rows of these sizes into runs of at most so many bytes and rows;
    at least one row each.
    """
    sums = np.cumsum(sizes, dtype=np.int64)
    bounds, start = [], 0
    while start < len(sizes):
        base = sums[start] - sizes[start]
        end = max(start + 1, int(np.searchsorted(sums, base + bytes_max, "right")))
        bounds.append((start, min(end, start + rows_max)))
        start = bounds[-1][1]
    return bounds
