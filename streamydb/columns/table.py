"""Columns: variable-length byte strings, and tables of columns; `encoding` is their binary form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamydb.columns.jit import copy_bytes, kernel

__all__ = [
    "Array",
    "Bytes",
    "Columns",
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


@dataclass(slots=True)
class Columns:
    """Rows as columns: fixed-width ``cols``, byte-string ``texts``, and ``children`` tables.

    A child is ``(counts, table)``: row i owns ``counts[i]`` consecutive rows of the child table.
    """

    cols: dict[str, Array] = field(default_factory=dict)
    texts: dict[str, Ragged] = field(default_factory=dict)
    children: dict[str, tuple[Array, Columns]] = field(default_factory=dict)

    def __len__(self) -> int:
        """The number of rows."""
        for col in self.cols.values():
            return len(col)
        for text in self.texts.values():
            return len(text)
        for counts, _ in self.children.values():
            return len(counts)
        return 0

    def take(self, index: Array) -> Columns:
        """The rows at ``index``, in that order, with their children."""
        index = np.ascontiguousarray(index, np.int64)
        children = {}
        for name, (counts, child) in self.children.items():
            rows = _expand(starts_of(counts), counts.astype(np.int64, copy=False), index)
            children[name] = (counts[index], child.take(rows))
        return Columns(
            {name: col[index] for name, col in self.cols.items()},
            {name: text.take(index) for name, text in self.texts.items()},
            children,
        )

    def part(self, start: int, end: int) -> Columns:
        """The rows from ``start`` up to ``end``, with their children; shares the arrays."""
        children = {}
        for name, (counts, child) in self.children.items():
            first, last = int(counts[:start].sum()), int(counts[:end].sum())
            children[name] = (counts[start:end], child.part(first, last))
        return Columns(
            {name: col[start:end] for name, col in self.cols.items()},
            {name: text.part(start, end) for name, text in self.texts.items()},
            children,
        )

    @classmethod
    def concat(cls, parts: Sequence[Columns]) -> Columns:
        """The rows of ``parts``, in order; all have the same columns.

        A part that lacks a child that another one has, has no rows of it.
        """
        if len(parts) == 1:
            return parts[0]
        first = parts[0]
        children = {}
        for name in dict.fromkeys(name for part in parts for name in part.children):
            own = [p.children.get(name) for p in parts]
            counts = np.concatenate([
                np.zeros(len(part), np.int64) if child is None else child[0]
                for part, child in zip(parts, own, strict=True)
            ])
            there = [child[1] for child in own if child is not None]
            children[name] = (counts, cls.concat(there))
        return cls(
            {name: np.concatenate([p.cols[name] for p in parts]) for name in first.cols},
            {name: Ragged.concat([p.texts[name] for p in parts]) for name in first.texts},
            children,
        )

    def flatten(self, prefix: str = "") -> dict[str, Array]:
        """All arrays by path, as `encoding.pack` takes them."""
        arrays = {prefix + name: col for name, col in self.cols.items()}
        for name, text in self.texts.items():
            base = text.offsets[0]
            arrays[f"{prefix}{name}$"] = text.data[base : text.offsets[-1]]
            arrays[f"{prefix}{name}#"] = text.offsets - base
        for name, (counts, child) in self.children.items():
            arrays[f"{prefix}{name}*"] = counts
            arrays.update(child.flatten(f"{prefix}{name}."))
        return arrays

    @classmethod
    def unflatten(cls, arrays: Mapping[str, Array], prefix: str = "") -> Columns:
        """The table whose arrays were flattened under ``prefix``."""
        tables: dict[str, Columns] = {"": cls()}
        for path, parent, name, kind, other in _places(tuple(arrays), prefix):
            table = tables.get(parent)
            if table is None:
                table = tables[parent] = cls()
            if kind == "$":
                table.texts[name] = Ragged(arrays[path], arrays[other])
            elif kind == "*":
                table.children[name] = (arrays[path], tables.setdefault(other, cls()))
            else:
                table.cols[name] = arrays[path]
        return tables[""]


@lru_cache(maxsize=256)
def _places(paths: tuple[str, ...], prefix: str) -> list[tuple[str, str, str, str, str]]:
    """Return the place of each array of a table: path, parent, name, and kind ($, * or nothing).

    ``other``: of texts, the path of their offsets; of a child's counts, the child's own name.
    """
    found = []
    for path in paths:
        if path.startswith(prefix) and path[-1] != "#":
            parent, _, name = path[len(prefix) :].rpartition(".")
            kind = name[-1] if name[-1] in "$*" else ""
            name = name.removesuffix(kind)
            below = f"{parent}.{name}" if parent else name
            found.append((path, parent, name, kind, path[:-1] + "#" if kind == "$" else below))
    return found


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
