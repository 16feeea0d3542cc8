"""The pipeline: the engine's stages as a Spark query, which is started, watched and taken over.

In: `<db>.transactions`, and feedback and rulings of its own. Out: results, changes, dead letters,
streams. `query` puts the stages together, `hosts` adapts the pure classes to Spark, `main` is a
start; `restarts` decides on internal faults, `standby` follows another pipeline and takes over.

Invariants: a batch that is repeated by any start writes the same bytes; a state is only believed
when it is on the log's own history; one pipeline leads, and only it writes.
"""

from __future__ import annotations
