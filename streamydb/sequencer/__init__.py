"""The sequencer: puts transactions into the log and closes the log's milliseconds with markers.

In: transactions of clients. Out: the topic `<db>.transactions`, whose offsets and append times are
the order. `core` decides when markers are due; `kafka` holds the adapters (the producer, the reader
of results, the thread that writes markers), which are not imported here, so that the pure part
stands alone.

Invariants: a marker's number lies above every effective time its sequencer has seen; a round goes
to every partition and names how many there are; no marker is written while no transaction waits;
with one partition none is written at all. Several sequencers, restarts, wild clocks and rounds that
were written in part change latencies, never the order of what is in the log.
"""

from __future__ import annotations

from streamydb.sequencer.core import NumbersExhaustedError, Sequencer

__all__ = ["NumbersExhaustedError", "Sequencer"]
