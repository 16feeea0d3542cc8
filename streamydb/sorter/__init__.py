"""The sorter: puts the records of the log into their one total order, and plans what it releases.

In: compiled records of one micro-batch, per partition in offset order. Out: the next records of the
total order with their effective times, and a plan of conflict groups. `core` orders
(KeyedEventTimeSorter), `planner` plans. The marker rule is in `streamydb.sequencer`.

Invariants: the order is a pure function of the log. A record that was released keeps its place.
Every shard sorts and plans alike.
"""

from __future__ import annotations
