"""YCSB's read-modify-write: records are counted up and given new data in one transaction."""

from __future__ import annotations

from typing import Any

from streamydb.procedures import procedure


@procedure(keys=lambda args: {"keys": args["writes"], "reads": args["reads"]})
def update(db: Any, reads: list[str], writes: list[str], data: str) -> list[int]:
    """Read some records, count others up; return the counts that were read."""
    seen = [db.get(key)["n"] for key in reads]
    for key in writes:
        record = db.get(key)
        record["n"] += 1
        record["data"] = data
        db.put(key, record)
    return seen
