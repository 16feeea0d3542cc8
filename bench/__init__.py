"""Measurements of the whole system on real Kafka and real Spark: `streamydb bench`.

`workload` makes transactions, `engine` runs a fresh broker and pipeline; `throughput`, `latency`
and `sustain` measure; `copy_limit` measures what a stateless Spark job does with the same topic;
`proof` adds up the money afterwards; `common`, `bank`, `others` and `report` put it together;
`main` is the command line.

In: options. Out: one JSON object or a table. Invariant: whatever is started here is stopped here.
"""

from __future__ import annotations
