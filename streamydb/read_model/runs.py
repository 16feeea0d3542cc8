"""The runs of a store as its writer sees them: it adds a run, and merges runs bit by bit.

A log-structured merge tree (O'Neil et al., 1996) in the manner of LevelDB: a run that is too large
beside the one before it is merged into that, part by part: only the parts that overlap are written
anew. So no commit takes long however much is stored, and a row is written again some ten times for
each tenfold of the data. Merging leaves out what no snapshot can show any more.

The list of the parts, in runs, is committed with them. The versions lie in runs, oldest first: each
run is sorted, and is cut into parts. All versions of a key in a run are newer than those in the
runs before. A part is written once and never changed, and its number is never given again; so while
it is in the list it stays at its address.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamydb.frames.addresses import address_of
from streamydb.read_model.merging import kept, merged, newer, rows_of, written
from streamydb.read_model.rows import (
    FOOT_BYTES,
    HEAD_BYTES,
    INDEX_BYTES,
    DamagedError,
    Ints,
    last_row,
    row_named,
)

PART: Final = np.dtype(
    [("id", "<i8"), ("run", "<i8"), ("address", "<i8"), ("length", "<i8"), ("rows", "<i8"),
     ("extra", "<i8"), ("due", "<i8"), ("newest", "<i8")]
)  # fmt: skip
"""A part: its number, run, address (0 where it is stored), bytes, rows, how many of those become
superfluous some day, the seq at which all of them are, and its largest seq."""

Parts = npt.NDArray[Any]  # of dtype `PART`, in their order


def no_parts() -> Parts:
    return np.empty(0, PART)


def packed(runs: Sequence[Parts]) -> bytes:
    parts = np.concatenate([no_parts(), *runs])
    parts["run"] = np.repeat(np.arange(len(runs)), [len(run) for run in runs])
    parts["address"] = 0
    return parts.tobytes()


def unpacked(data: bytes) -> Parts:
    return np.frombuffer(data, PART).copy()


def fits(parts: Parts) -> bool:
    least = parts["rows"] * (HEAD_BYTES + INDEX_BYTES) + FOOT_BYTES
    return bool(((parts["rows"] > 0) & (least <= parts["length"])).all())


def view_of(runs: Sequence[Parts]) -> Ints:
    """The runs as kernels take them; see `lookup`."""
    parts = np.concatenate([no_parts(), *runs])
    offsets = np.cumsum([len(run) for run in runs], dtype=np.int64)
    newest = [int(run["newest"].max()) for run in runs]
    places = np.stack([parts["address"], parts["length"], parts["rows"]], axis=1)
    return np.concatenate([[len(runs), 0], offsets, newest, places.ravel()]).astype(np.int64)


PART_BYTES: Final = 1 << 18

RATIO: Final = 8  # a run has at least so many times the bytes of the next one
STEP_BYTES: Final = 1 << 23  # about so much is merged at a time
COMMIT_BYTES: Final = 1 << 24
"""A commit merges at least about so much, if there is anything to merge."""

COMMIT_RATIO: Final = 32  # and at least so many times what it adds
RUNS_MAX: Final = 12  # with more runs, a commit merges even if records wait to be read
SHARE: Final = 0.25
"""Part of the rows of the oldest run that may be superfluous before they are removed."""

_GOLDEN: Final = 0.6180339887498949


class _Merge(NamedTuple):
    """The parts of a run from ``first`` to before ``last``, merged with those of the run before.

    ``run``: the number of the run before; parts of the next may be none.
    """

    run: int
    first: int
    last: int
    lower_first: int
    lower_last: int


class Runs:
    """The runs of a store during one commit.

    Attributes:
        runs: the oldest first.
        fresh: number of a part -> its bytes, of those that are not stored yet.
        gone: numbers of parts that are stored and no longer needed.
    """

    def __init__(self, runs: list[Parts], numbers: int) -> None:
        self.runs = runs
        self.fresh: dict[int, Any] = {}
        self.gone: list[int] = []
        self._next = numbers

    def add(self, rows: Ints) -> None:
        if len(rows):
            self.runs.append(self._written(rows))

    def extend(self, rows: Ints) -> None:
        """Add sorted rows behind all others, to the only run."""
        self.runs = [np.concatenate([*self.runs, self._written(rows)])]

    def view(self) -> Ints:
        return view_of(self.runs)

    def newer(self, seq: int) -> Ints:
        parts = [run[run["newest"] > seq] for run in self.runs]
        return np.concatenate([np.empty(0, np.int64), *(newer(_rows(run), seq) for run in parts)])

    def settle(self, horizon: int, added_bytes: int, resolved: int, *, hurry: bool = False) -> bool:
        """Merge what has to be merged, but not for too long; whether more is left.

        While there are few runs, it is left for later when records wait to be read, and when some
        rows are not resolved yet: the record that shows them must not wait for a merge. It comes,
        so nothing is said to be left for its sake.

        ``horizon``: the oldest snapshot's seq. ``added_bytes``: what the commit adds. ``resolved``:
        the newest snapshot's seq.
        Raises DamagedError: a part cannot be read.
        """
        few = len(self.runs) <= RUNS_MAX
        if few and not hurry and any((run["newest"] > resolved).any() for run in self.runs):
            return False
        budget = 0 if few and hurry else max(COMMIT_BYTES, COMMIT_RATIO * added_bytes)
        share = 0.0
        while (step := self._due(horizon, share)) is not None:
            if budget <= 0:
                return True
            share = (share + _GOLDEN) % 1
            budget -= self._merge(step, horizon)
        return False

    def _due(self, horizon: int, share: float) -> _Merge | None:
        sizes = [int(run["length"].sum()) for run in self.runs]
        for upper in range(len(sizes) - 1, 0, -1):
            if sizes[upper] * RATIO > sizes[upper - 1]:
                return self._pushed(upper, share, horizon)
        return self._cleaned(horizon) if self.runs else None

    def _pushed(self, upper: int, turn: float, horizon: int) -> _Merge:
        """Parts of a run to merge into the run before: all, or some of them."""
        parts = self.runs[upper]
        last = len(parts)
        step = self._overlap(upper, 0, last, horizon)
        if self._bytes(step) <= STEP_BYTES:
            return step
        last = int(turn * len(parts)) + 1
        while last < len(parts) and _first(parts, last)[0] == _last(parts, last - 1)[0]:
            last += 1  # older versions of a key never stay above newer ones
        step = self._overlap(upper, last - 1, last, horizon)
        while step.first > 0:
            wider = self._overlap(upper, step.first - 1, last, horizon)
            if self._bytes(wider) > STEP_BYTES:
                break
            step = wider
        return step

    def _overlap(self, upper: int, first: int, last: int, horizon: int) -> _Merge:
        """Parts of a run, and those of the run before that lie between their ends.

        If what is known of the last key reaches back to the horizon, then so do all its versions:
        those that nobody can see have to be met to be left out.
        """
        parts, lower = self.runs[upper], self.runs[upper - 1]
        begin, (key, seq) = _first(parts, first), _last(parts, last - 1)
        places = range(len(lower))
        start = bisect_left(places, begin, key=lambda i: _last(lower, i))
        end = max(start, bisect_right(places, (key, seq), key=lambda i: _first(lower, i)))
        if start == end and start > 0:
            start -= 1  # a neighbour, so that small parts do not stay small
        end = self._reaching(lower, end, (key, seq), horizon)
        if end > start:
            end = self._reaching(lower, end, _last(lower, end - 1), horizon)
        return _Merge(upper - 1, first, last, start, end)

    @staticmethod
    def _reaching(lower: Parts, end: int, last: tuple[bytes, int], horizon: int) -> int:
        """The end of the parts that hold what is left of a key, if nobody can see that."""
        while end < len(lower) and -last[1] <= horizon and _first(lower, end)[0] == last[0]:
            last = _last(lower, end)
            end += 1
        return end

    def _cleaned(self, horizon: int) -> _Merge | None:
        """Parts of the oldest run of which enough can be removed."""
        parts = self.runs[0]
        enough = (parts["extra"] > 0) & (parts["due"] <= horizon)
        places = np.flatnonzero(enough & (parts["extra"] >= SHARE * parts["rows"]))
        if not len(places):
            return None
        start, end = int(places[0]), int(places[0]) + 1
        while start > 0:
            key, seq = _last(parts, start - 1)
            if key != _first(parts, start)[0] or -seq > horizon:
                break
            start -= 1
        end = self._reaching(parts, end, _last(parts, end - 1), horizon)
        return _Merge(0, 0, 0, start, end)

    def _bytes(self, step: _Merge) -> int:
        lower = self.runs[step.run]["length"][step.lower_first : step.lower_last].sum()
        if step.last == step.first:
            return int(lower)
        return int(lower + self.runs[step.run + 1]["length"][step.first : step.last].sum())

    def _merge(self, step: _Merge, horizon: int) -> int:
        """Write some parts anew; return how many bytes they had."""
        size = self._bytes(step)
        lower = self.runs[step.run]
        old = lower[step.lower_first : step.lower_last]
        rows = _rows(old)
        above = no_parts()
        if step.last > step.first:
            upper = self.runs[step.run + 1]
            above = upper[step.first : step.last]
            rows = merged(_rows(above), rows)
            self.runs[step.run + 1] = np.concatenate([upper[: step.first], upper[step.last :]])
        parts = self._written(kept(rows, horizon, step.run == 0))
        self._remove(old)
        self._remove(above)
        before, behind = lower[: step.lower_first], lower[step.lower_last :]
        _note_boundary(before, parts)
        _note_boundary(parts, behind)
        self.runs[step.run] = np.concatenate([before, parts, behind])
        self.runs = [run for run in self.runs if len(run)]
        return size

    def _remove(self, parts: Parts) -> None:
        """Forget parts; their bytes stay readable until the commit."""
        for number in parts["id"].tolist():
            if self.fresh.pop(number, None) is None:
                self.gone.append(number)

    def _written(self, rows: Ints) -> Parts:
        if not len(rows):
            return no_parts()
        buffer, new_parts = written(rows, PART_BYTES)
        parts = np.zeros(len(new_parts), PART)
        for name in ("length", "rows", "extra", "due", "newest"):
            parts[name] = new_parts[name]
        parts["id"] = np.arange(self._next, self._next + len(new_parts))
        parts["address"] = address_of(buffer) + new_parts["start"]
        self._next += len(new_parts)
        for number, start, length in zip(
            parts["id"].tolist(),
            new_parts["start"].tolist(),
            new_parts["length"].tolist(),
            strict=True,
        ):
            self.fresh[number] = buffer.data[start : start + length]
        return parts


def _rows(parts: Parts) -> Ints:
    """All rows of parts."""
    columns = (np.ascontiguousarray(parts[name]) for name in ("address", "length", "rows"))
    rows = rows_of(*columns)
    if len(rows) != parts["rows"].sum():
        raise DamagedError
    return rows


def _note_boundary(before: Parts, behind: Parts) -> None:
    """Count it if a key goes on in the next part: its first row there is superfluous some day."""
    if not len(before) or not len(behind):
        return
    key, seq = _last(before, len(before) - 1)
    if _first(behind, 0)[0] == key:
        behind["extra"][0] += 1
        behind["due"][0] = max(behind["due"][0], -seq)


def _first(parts: Parts, i: int) -> tuple[bytes, int]:
    return row_named(int(parts["address"][i]))


def _last(parts: Parts, i: int) -> tuple[bytes, int]:
    part = parts[i]
    return row_named(last_row(int(part["address"]), int(part["length"]), int(part["rows"])))
