"""Compile the columnar kernels to machine code (numba), with the cost paid once per machine.

The inner loops of planning, execution and formatting run over columns of hundreds of thousands
of transactions per plan; a plain Python loop costs microseconds per transaction there. Kernels are
written as plain typed loops over numpy arrays, and numba compiles and caches them on disk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

__all__ = ["inlined", "kernel"]

_F = TypeVar("_F", bound=Callable[..., Any])


def kernel(function: _F) -> _F:
    """Compile ``function`` in nopython mode, cached on disk, releasing the GIL while it runs."""
    return cast("_F", numba.njit(cache=True, nogil=True)(function))


def inlined(function: _F) -> _F:
    """Compile a small helper that kernels call; LLVM inlines it where that pays."""
    return cast("_F", numba.njit(cache=True, nogil=True, inline="never")(function))
