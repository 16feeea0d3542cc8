"""The sequencer: decides when epoch markers are written, so that a quiet partition delays nobody.

In: the records of the log with their append times. Out: the markers that are due. `core` decides
(Sequencer, pure); `pipeline.markers` is the thread that writes them.

Invariants: a marker's number lies above every effective time that its sequencer has seen. A round
goes to every partition and names their number. Markers are written only while a transaction waits,
and never with one partition. Several sequencers, restarts, wild clocks and rounds that were written
in part change latencies, never the order of the log.
"""

from __future__ import annotations

from streamydb.sequencer.core import NumbersExhaustedError, Sequencer

__all__ = ["NumbersExhaustedError", "Sequencer"]
