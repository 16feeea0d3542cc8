"""Benchmarks of the literature, each with the correctness check of its own paper.

`tspoon` is TSpoon's bank, `voter` S-Store's leaderboard maintenance, `ycsb` the transactions of
Q-Store, `sss` the mix of SSS, `tpcc` the transactions of TPC-C. Each makes seeded transactions, and
has a judge, which is pure: it is told what was asked, answered and changed, and names invariants
that do not hold. `driver` runs them on a fresh broker and pipeline, `evidence` tells the judge what
is in Kafka, `players` are clients that speak HTTP; `procedures` are the modules that are deployed.
"""

from __future__ import annotations
