"""What constraints cost a transfer of two updates in the pure classes; no Spark.

python -m bench.constraints
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.calls import BATCH, Bench
from streamydb.pipeline.warmup import warm_up

DROPPED = "all dropped"
DECLARED: tuple[tuple[str, list[dict[str, Any]]], ...] = (
    ("none was ever declared", []),
    (DROPPED, [{"prefix": "from/", "min": 0}]),
    ("16 declared, none matches", [{"prefix": f"other{i}/", "min": 0} for i in range(16)]),
    ("bounds match", [{"prefix": "from/", "type": "integer", "min": -(10**9)}]),
    ("a JSON Schema matches", [{"prefix": "from/", "schema": {
        "type": "integer", "minimum": -(10**9), "maximum": 10**9}}]),
)  # fmt: skip


def transfer(i: int) -> dict[str, Any]:
    """Two updates of other keys each time."""
    source = {"op": "add", "key": f"from/{i % 997}", "by": -1}
    return {"updates": [source, {"op": "add", "key": f"to/{i % 991}", "by": 1}]}


def main() -> None:
    """Print the best of seven batches each."""
    warm_up()
    print(f"{'us per transaction':<28} parse  shard  execute and format")
    for name, rules in DECLARED:
        bench = Bench()
        for place, rule in enumerate(rules):
            bench.run([{"constrain": {"declare": {"name": f"c{place}", **rule}}}])
        if name == DROPPED:
            bench.run([{"constrain": {"drop": "c0"}}])
        runs = [bench.run([transfer(i) for i in range(BATCH)]) for _ in range(7)]
        best = np.min(runs, axis=0) / BATCH * 1e6
        print(f"{name:<28} {best[0]:5.1f}  {best[1]:5.1f}  {best[2:].sum():5.1f}")


if __name__ == "__main__":
    main()
