"""What digests cost: `python -m bench.digest` prints nanoseconds a write.

Transfers between 100,000 accounts, two writes each, integers, one shard.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from streamydb.frames import program as p
from streamydb.frames.digest import write_deltas
from streamydb.frames.table import Ragged

_TRANSFERS = 100_000
_ROUNDS = 60


def main() -> None:
    """Time `write_deltas` over one plan, the best of some rounds."""
    rng = np.random.default_rng(1)
    keys = Ragged.of([b"acct/%d" % i for i in range(_TRANSFERS)])
    writes = np.zeros(2 * _TRANSFERS, p.WRITE)
    writes["txn"] = np.repeat(np.arange(_TRANSFERS), 2)
    writes["slot"] = rng.integers(0, _TRANSFERS, len(writes))
    writes["before_tag"] = writes["after_tag"] = p.INT
    writes["before_number"], writes["after_number"] = 100, 101
    seqs = np.arange(1, _TRANSFERS + 1)
    met, home = np.ones(_TRANSFERS, np.int64), np.zeros(_TRANSFERS, np.int64)
    times = []
    for _ in range(_ROUNDS):
        begun = time.perf_counter()
        write_deltas(writes, seqs, keys, met, home, Ragged.empty(1), 10_000, 1)
        times.append(time.perf_counter() - begun)
    sys.stdout.write(f"{1e9 * min(times) / len(writes):.1f} ns a write\n")


if __name__ == "__main__":
    main()
