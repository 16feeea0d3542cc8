"""The real-time gear: a second pipeline over the log, made for latency, that keeps nothing.

`core` executes records as they come, with the classes of the micro-batch gear (pure); `overlay` is
its view of the values: what it has written since its base, then the base (pure); `files` opens the
base that the micro-batch gear has left on this machine.

Invariants: the bytes of an output do not depend on the gear that wrote it; the micro-batch gear
never waits for anything that this one has; what this one cannot do, it leaves to the other gear
before it has begun it.
"""

from __future__ import annotations
