"""The facts of a block that both of its sides check: who makes it, and who is handed it."""

from __future__ import annotations

from typing import Any, Final

import numpy.typing as npt

from streamydb import limits
from streamydb.columns import program as p
from streamydb.columns.invariants import Seam
from streamydb.columns.jit import kernel
from streamydb.columns.table import Bytes, Columns
from streamydb.columns.value_rows import KEYS_FACT

__all__ = ["require_records"]

Ints = npt.NDArray[Any]

_SUMS: Final = "counts add up to the rows"

_RECORD_FACTS: Final = (
    "records are of a known kind, with one home, and markers alone have numbers", _SUMS, KEYS_FACT,
)

@kernel
def _wrong_record(
    kinds: Bytes, counts: tuple[Ints, Ints, Ints], rows: tuple[int, int, int], keys: Ints, most: int
) -> tuple[int, int]:
    of_keys, of_homes, of_markers = counts
    key, home, marker = 0, 0, 0
    for i in range(len(kinds)):
        if kinds[i] > p.MARKER or of_homes[i] < 0 or of_homes[i] > 1:
            return 0, i
        if of_markers[i] != (kinds[i] == p.MARKER):
            return 0, i
        if of_keys[i] < 0:
            return 1, i
        key, home, marker = key + of_keys[i], home + of_homes[i], marker + of_markers[i]
    if key != rows[0] or home != rows[1] or marker != rows[2]:
        return 1, -1
    for k in range(len(keys) - 1):
        length = keys[k + 1] - keys[k]
        if length < 1 or length > most:
            return 2, k
    return -1, -1


def require_records(seam: Seam, table: Columns) -> None:
    """Require what holds of compiled records."""
    (keys, key_rows), (homes, home_rows), (markers, marker_rows) = (
        table.children[name] for name in ("keys", "home", "marker")
    )
    found = _wrong_record(
        table.cols["kind"], (keys, homes, markers),
        (len(key_rows), len(home_rows), len(marker_rows)), key_rows.texts["key"].offsets,
        limits.KEY_BYTES_MAX,
    )
    seam.require_none(found, _RECORD_FACTS)
