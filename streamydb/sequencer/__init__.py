"""The sequencer: closes the log's milliseconds with markers, so that they can be put in order.

In: what was appended to the log, and when. Out: the markers that are due. `core` decides
(Sequencer, pure); the thread that writes them is `pipeline.markers`.

Invariants: a marker's number lies above every effective time its sequencer has seen; a round goes
to every partition and names how many there are; no marker is written while no transaction waits;
with one partition none is written at all. Several sequencers, restarts, wild clocks and rounds that
were written in part change latencies, never the order of what is in the log.
"""

from __future__ import annotations

from streamydb.sequencer.core import NumbersExhaustedError, Sequencer

__all__ = ["NumbersExhaustedError", "Sequencer"]
