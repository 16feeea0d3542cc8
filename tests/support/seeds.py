"""How many seeds or examples a test draws: a few in `make test`, more where more are asked for."""

from __future__ import annotations

import os

__all__ = ["ASKED_FOR", "seeds"]

_SHORT, _BASE = 40, 120
ASKED_FOR = int(os.environ.get("STREAMYDB_SIM_SEEDS", _SHORT))
"""Seeds of one pipeline. `make proof` and `make test-random` ask for 400.

`make sim-long` runs seeds of its own.
"""


def seeds(count: int) -> int:
    """``count`` in `make test`; more if more are asked for, in proportion."""
    return max(count, count * ASKED_FOR // _BASE)
