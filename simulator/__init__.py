"""The simulator: the real pure classes under everything that can go wrong, one seed at a time.

`run_seed` is a pure function of its seed, so a failing seed reproduces alone. `mutations` breaks
the classes on purpose and shows that the simulator notices.
"""

from __future__ import annotations

from simulator.run import Divergence, SeedOutcome, run_seed

__all__ = ["Divergence", "SeedOutcome", "run_seed"]
