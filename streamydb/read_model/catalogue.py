"""The list of a store's parts, in runs; it is committed with them.

The versions lie in runs, oldest first: each run is sorted, and is cut into parts. All versions of a
key in a run are newer than those in the runs before. A part is written once and never changed, and
its number is never given again; so while it is in the list it stays at its address.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from streamydb.read_model.rows import FOOT_BYTES, HEAD_BYTES, INDEX_BYTES, Ints

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
