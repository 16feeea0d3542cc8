"""Numbers that only this process knows: they place entries in its tables in memory.

The hashes of keys and ids are public, so a client can make as many as it likes that want one place
in a table, and each would be looked for behind all others. Where a table puts an entry must depend
on something that no client knows. Nothing else may: what is found in a table, and in which order
its entries are numbered, is the same for all numbers, so no output and no state depends on them.
"""

from __future__ import annotations

import secrets
from typing import Final

import numpy as np

FACTOR: Final = np.uint64(secrets.randbits(64) | 1)
"""For hashes: the upper bits of the product are the place. Two of them meet no more often than by
chance (Dietzfelbinger et al. 1997, "A reliable randomized algorithm for the closest-pair problem").
"""

SEED: Final = np.uint64(secrets.randbits(64))
"""For texts of which the public hashes may be alike: the seed of another hash."""
