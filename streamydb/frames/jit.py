"""Compile the columnar kernels to machine code (numba), with the cost paid once per machine.

The inner loops of planning, execution and formatting run over columns of hundreds of thousands
of transactions per plan; a plain Python loop costs microseconds per transaction there. Kernels are
written as plain typed loops over numpy arrays, and numba compiles and caches them on disk.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

import numba
from numba.core import cgutils, event, types
from numba.extending import intrinsic

from streamydb.frames.kernel_cache import KernelCache

_F = TypeVar("_F", bound=Callable[..., Any])


def kernel(function: _F) -> _F:
    """Compile ``function`` in nopython mode, cached on disk, releasing the GIL while it runs."""
    return cast("_F", _cached(numba.njit(nogil=True)(function)))


def brief(function: _F) -> _F:
    """Compile a kernel that is soon done, and keeps the GIL: nobody frees what it reads."""
    return cast("_F", _cached(numba.njit(function)))


def leaf(function: _F) -> _F:
    """Compile a kernel that makes no array.

    numba then counts no references in it. Elsewhere it counts one whenever an array is taken out of
    a named tuple, which costs more than the arithmetic does.
    """
    options: dict[str, Any] = {"nogil": True, "_nrt": False}
    return cast("_F", _cached(numba.njit(**options)(function)))


def inlined(function: _F) -> _F:
    """Compile a small helper that kernels call; LLVM inlines it where that pays."""
    return cast("_F", _cached(numba.njit(nogil=True, inline="never")(function)))


def _cached(compiled: Any) -> Any:
    """Give a kernel its cache on disk; with NUMBA_DISABLE_JIT it is a function, and needs none."""
    if hasattr(compiled, "enable_caching"):
        compiled._cache = KernelCache(compiled.py_func)  # noqa: SLF001 - as `enable_caching` does
        compiled.get_call_template = partial(_plainly_typed, compiled.get_call_template)
    return compiled


def _plainly_typed(template: Callable[..., Any], args: Any, kws: Any) -> Any:
    """Type a kernel's call in another kernel as if none of its arguments were a constant.

    numba else compiles the called kernel once more for each constant: 12 times for 12 fields.
    """
    plain: Any = types.unliteral
    return template(tuple(map(plain, args)), {name: plain(of) for name, of in kws.items()})


class _CompilerEvents(event.Listener):
    """Keeps Python's collector away while numba compiles: it took a tenth of the time."""

    _depth, _enabled = 0, False

    def on_start(self, event: Any) -> None:  # noqa: ARG002 - numba's interface
        """Begin a kernel, or one that it calls; numba compiles one at a time."""
        if self._depth == 0:
            self._enabled = gc.isenabled()
            gc.disable()
        self._depth += 1

    def on_end(self, event: Any) -> None:  # noqa: ARG002 - numba's interface
        """End it, also if it could not be compiled."""
        self._depth -= 1
        if self._depth == 0 and self._enabled:
            gc.enable()


event.register("numba:compile", _CompilerEvents())  # type: ignore[no-untyped-call]


@leaf
def same_text(data: Any, offsets: Any, left: int, right: int) -> bool:
    """Return whether two texts of a column are equal; in a kernel."""
    length = offsets[left + 1] - offsets[left]
    if offsets[right + 1] - offsets[right] != length:
        return False
    for j in range(length):
        if data[offsets[left] + j] != data[offsets[right] + j]:
            return False
    return True


def _copy_bytes(_context: Any, out: Any, _at: Any, data: Any, _start: Any, _length: Any) -> Any:
    """Type and code of `copy_bytes`; see numba's documentation of intrinsics."""
    signature = types.void(out, types.intp, data, types.intp, types.intp)

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        array, place, source, begin, count = arguments
        target = context.make_array(out)(context, builder, array).data
        origin = context.make_array(data)(context, builder, source).data
        left, right = builder.gep(target, [place]), builder.gep(origin, [begin])
        cgutils.raw_memcpy(builder, left, right, count, 1)  # type: ignore[no-untyped-call]
        return context.get_dummy_value()

    return signature, generate


copy_bytes = cast("Callable[[Any, int, Any, int, int], None]", intrinsic(_copy_bytes))
"""In a kernel: ``out[at : at + length] = data[start : start + length]`` for arrays of bytes.

Arguments: out, at, data, start, length. A plain memcpy: a loop over bytes costs several times as
much, because the compiler must expect the arrays to overlap. Positions are not checked.
"""
