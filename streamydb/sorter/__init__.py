"""The sorter: puts the records of the log into their one total order.

In: compiled records of one micro-batch, per partition in offset order. Out: the next records of the
total order with their effective times. `core` orders (KeyedEventTimeSorter). The marker rule is in
`streamydb.sequencer`.

Invariants: the order is a pure function of the log. A record that was released keeps its place.
Every shard sorts alike.
"""

from __future__ import annotations
