"""What a range costs a transaction in the pure classes, its values in a file; no Spark.

    python -m bench.ranges

Each batch is one plan of 1,000 transactions. There are 100,000 keys: 1,000 ranges of 100.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from bench.calls import Bench
from streamydb.local.shard_files import LmdbValues
from streamydb.pipeline.warmup import warm_up

COUNT = 1_000
KEYS = 100

Make = Callable[[int], dict[str, Any]]


def own(i: int) -> dict[str, Any]:
    """The range of a transaction."""
    return {"range": {"prefix": f"r{i:04}/"}}


def put(i: int, inside: int) -> list[dict[str, Any]]:
    """An update of a key: of one in range ``inside``, or of one in none, if that is negative."""
    key = f"other/{i}" if inside < 0 else f"r{inside:04}/{i % KEYS:02}"
    return [{"op": "put", "key": key, "value": i}]


def checked(i: int) -> list[dict[str, Any]]:
    """A check that holds."""
    return [{**own(i), "count": KEYS, "version_le": 1 << 40}]


CASES: tuple[tuple[str, Make], ...] = (
    ("an update, no range", lambda i: {"updates": put(i, -1)}),
    ("checks a range of its own", lambda i: {"checks": checked(i), "updates": put(i, -1)}),
    ("checks it, writes into it", lambda i: {"checks": checked(i), "updates": put(i, i)}),
    ("checks it, writes into another", lambda i: {"checks": checked(i), "updates": put(i, i ^ 1)}),
    ("all check one, one writes into it",
     lambda i: {"checks": checked(0), "updates": put(i, -1 if i else 0)}),
    ("all check one and write into it", lambda i: {"checks": checked(0), "updates": put(i, 0)}),
    ("reads a range of its own", lambda i: {"reads": [own(i)], "updates": put(i, -1)}),
    ("reads it, writes into it", lambda i: {"reads": [own(i)], "updates": put(i, i)}),
)  # fmt: skip


def main() -> None:
    """Print the best of five batches each."""
    warm_up()
    with TemporaryDirectory() as folder:
        _measure(Bench(LmdbValues(Path(folder))))


def _measure(bench: Bench) -> None:
    for start in range(0, COUNT, 100):
        puts = [[{"op": "put", "key": f"r{i:04}/{j:02}", "value": j} for j in range(KEYS)]
                for i in range(start, start + 100)]  # fmt: skip
        bench.run([{"updates": updates} for updates in puts])
    print(f"{'us of processor time a transaction':<36} parse  shard  execute and format")
    for name, make in CASES:
        runs = [bench.run([make(i) for i in range(COUNT)]) for _ in range(5)]
        best = np.min(runs, axis=0) / COUNT * 1e6
        print(f"{name:<36} {best[0]:5.1f} {best[1]:6.1f} {best[2:].sum():7.1f}", flush=True)


if __name__ == "__main__":
    main()
