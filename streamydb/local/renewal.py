"""Begin a process anew when it has compiled kernels, which are in the cache then.

A compiler keeps what it has made of all code until its process ends: of a process that has compiled
all kernels, 170 of 280 MB. It compiles once on a machine and for each release, but a service that
did so would keep that for weeks.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_RENEWED: Final = "STREAMYDB_RENEWED"
"""Names the process that was begun anew: it is not done twice, where no cache can be kept."""

_COMPILES: Final = "numba:compile"
"""numba's event of a kernel that was not in the cache."""


def compiles(body: Callable[[], None]) -> bool:
    """Run ``body``; return True if kernels were compiled in it,
    and not only read from the cache.
    """
    from numba.core.event import install_recorder

    with install_recorder(_COMPILES) as events:
        body()
    return bool(events.buffer)


def renew() -> None:
    """Begin this process anew, with the same id, command, environment and inherited files.

    For a process that has nothing open yet that must be closed, from its main thread. It returns if
    this was done before.
    """
    own = str(os.getpid())
    if os.environ.get(_RENEWED) == own:
        return
    os.environ[_RENEWED] = own
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - ourselves
