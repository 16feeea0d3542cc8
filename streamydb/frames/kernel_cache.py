"""The cache of compiled kernels on disk: it must never give code that was compiled of other source.

numba looks whether a kernel's own file has changed. But the machine code of a kernel has the
kernels that it calls in it, and the constants that it names, and those may stand in other files.
Here the meaning of all of them counts, by content; no time of any file does.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
from numba.core import types
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.dispatcher import Dispatcher
from numba.core.extending import _Intrinsic

from streamydb.errors import ConfigurationError

_PLAIN = (int, float, complex, str, bytes, np.generic, np.dtype, types.Type, type(None))


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The code of a function, and of the functions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _named(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """The globals that a function names, and what it may name of modules among them."""
    names = [name for code in _codes(function.__code__) for name in code.co_names]
    spaces = [function.__globals__]
    for space in spaces:
        for name in names:
            value = space.get(name)
            yield name, value
            if isinstance(value, ModuleType) and all(vars(value) is not each for each in spaces):
                spaces.append(vars(value))


def _compiled_of(value: Any) -> Any:
    """The Python function of a kernel or an intrinsic; None if it is neither."""
    if isinstance(value, Dispatcher):
        return value.py_func
    return value._defn if isinstance(value, _Intrinsic) else None  # noqa: SLF001 - the only way


def _content(value: Any) -> str:
    """A constant in words that every process finds; empty if no kernel can use it."""
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, tuple):
        return f"({', '.join(map(_content, value))})"
    if isinstance(value, np.ndarray):
        return f"{value.dtype!r}{value.shape}{value.tobytes().hex()}"
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}{getattr(value, '_fields', '')}"
    return ""


@functools.cache
def _own(function: FunctionType) -> tuple[bytes, tuple[FunctionType, ...]]:
    """The digest of a function without what it calls, and what it calls."""
    digest = hashlib.sha256(_content(function.__defaults__).encode())
    for code in _codes(function.__code__):
        constants = [
            each
            for each in code.co_consts
            if not isinstance(each, CodeType) and each is not function.__doc__
        ]
        shape = code.co_names, code.co_varnames, code.co_freevars, code.co_argcount, constants
        digest.update(code.co_code + repr(shape).encode())
    called = []
    for name, value in _named(function):
        inner = _compiled_of(value)
        if inner is not None:
            called.append(inner)
            options = repr(sorted(getattr(value, "targetoptions", {}).items()))
            digest.update(f"{name}={inner.__module__}.{inner.__qualname__}{options}\n".encode())
        elif content := _content(value):
            digest.update(f"{name}={content}\n".encode())
    return digest.digest(), tuple(called)


def callees(function: FunctionType) -> tuple[FunctionType, ...]:
    """Return the kernels and intrinsics that a kernel may call, as they are in Python."""
    return _own(function)[1]


@functools.cache
def meaning(function: FunctionType) -> bytes:
    """Return a digest of a kernel's code, of all kernels that it calls, and of their constants."""
    order = [function]
    known = {function}
    for each in order:
        for called in callees(each):
            if called not in known:
                known.add(called)
                order.append(called)
    return hashlib.sha256(b"".join(_own(each)[0] for each in order)).digest()


class KernelFile(IndexDataCacheFile):
    """A kernel's files. Index and code carry their stamp, as numba replaces one before the other.

    The stamp is made when the kernel is first called: what it calls may stand below it in its file.
    """

    def __init__(self, path: str, name: str, stamp: object, function: FunctionType) -> None:
        """Name the files in ``path``; ``stamp``: of the function's own file."""
        super().__init__(path, name, stamp)
        self._file_stamp, self._function = stamp, function

    def _load_index(self) -> Any:
        self._source_stamp = self._file_stamp, meaning(self._function)
        try:
            return super()._load_index()
        except (AttributeError, ImportError):
            # The index names the classes of the arguments. It is read before its stamp is looked
            # at, and in another release a named tuple may have another name or place.
            return {}

    def _save_data(self, name: str, data: Any) -> None:
        super()._save_data(name, (self._source_stamp, data))

    def _load_data(self, name: str) -> Any:
        data = super()._load_data(name)
        return data[1] if data[0] == self._source_stamp else None


def _fields(of: Any) -> tuple[Any, ...]:
    """The names of the fields of named tuples in a signature; numba only compares their types."""
    own = getattr(getattr(of, "instance_class", None), "_fields", ())
    parts: Any = of if isinstance(of, (tuple, types.BaseTuple)) else ()
    return own, *(_fields(part) for part in parts)


class KernelCache(FunctionCache):
    """The cache of one kernel."""

    def __init__(self, function: FunctionType) -> None:
        """Look where the kernel's files are; nothing is read yet.
        Raises ConfigurationError: they could be nowhere.
        """
        try:
            super().__init__(function)
        except RuntimeError as error:
            raise ConfigurationError(
                "compiled kernels cannot be kept: this user may write neither beside "
                f"{function.__code__.co_filename} nor into a cache folder of its own home; name a "
                "folder with NUMBA_CACHE_DIR"
            ) from error
        self._cache_file = KernelFile(
            self._cache_path,
            self._impl.filename_base,
            self._impl.locator.get_source_stamp(),
            function,
        )

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        return super()._index_key(sig, codegen), _fields(sig)
