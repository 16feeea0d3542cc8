"""Memory by its address, for kernels that read and write bytes which lie in many buffers.

A kernel that takes arrays can take few of them, each at a cost; one that takes addresses can walk
through any number of buffers. Nothing is checked here: who gives an address keeps the buffer alive,
and its length is known.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final, cast

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

SPARE_BYTES: Final = 8
"""Behind the texts of a buffer, so that a text's last bytes can be loaded as a whole word."""

_SPACE_BYTES: Final = 1 << 47
_memory = memoryview((ctypes.c_char * _SPACE_BYTES).from_address(1)).cast("B")

_ANY_PLACE: Final = 1
"""The alignment of an address: none."""


def address_of(buffer: Any) -> int:
    return int(np.frombuffer(buffer, np.uint8).ctypes.data)


def bytes_at(address: int, length: int) -> bytes:
    """A copy of the bytes at an address."""
    return bytes(_memory[address - 1 : address - 1 + length])


def _load(bits: int, *, big_end_first: bool = False) -> Any:
    """An intrinsic that loads an integer without a sign, or a word of 64 bits."""
    kind = types.uint64 if big_end_first else types.int64

    def load(_context: Any, _address: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            pointer = builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer())
            word = builder.load(pointer, align=_ANY_PLACE)
            if big_end_first:
                return builder.bswap(word)
            return builder.zext(word, ir.IntType(64)) if bits < 64 else word

        return kind(types.int64), generate

    return intrinsic(load)


def _store(bits: int) -> Any:
    """An intrinsic that stores the lower bits of an integer."""

    def store(_context: Any, _address: Any, _value: Any) -> Any:
        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            pointer = builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer())
            value = arguments[1]
            if bits < 64:
                value = builder.trunc(value, ir.IntType(bits))
            builder.store(value, pointer, align=_ANY_PLACE)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), generate

    return intrinsic(store)


def _copy(_context: Any, _to: Any, _start: Any, _length: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        left, right = (builder.inttoptr(each, byte) for each in arguments[:2])
        cgutils.raw_memcpy(builder, left, right, arguments[2], 1)  # type: ignore[no-untyped-call]
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


def _start(_context: Any, buffer: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        data = context.make_array(buffer)(context, builder, arguments[0]).data
        return builder.ptrtoint(data, ir.IntType(64))

    return types.int64(buffer), generate


def _call(_context: Any, _function: Any, _argument: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(64)])
        builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), [arguments[1]])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


start_of = cast("Callable[[Any], int]", intrinsic(_start))
"""In a kernel: the address at which bytes, or an array, begin."""

byte_at = cast("Callable[[int], int]", _load(8))
"""In a kernel: the byte at an address."""

short_at = cast("Callable[[int], int]", _load(16))
"""In a kernel: two bytes, little end first."""

double_at = cast("Callable[[int], int]", _load(32))
"""In a kernel: four bytes, little end first, without a sign."""

word_at = cast("Callable[[int], int]", _load(64))
"""In a kernel: eight bytes, little end first, with a sign."""

ordered_at = cast("Callable[[int], np.uint64]", _load(64, big_end_first=True))
"""In a kernel: eight bytes of a text as an integer that sorts as the text does."""

put_word = cast("Callable[[int, int], None]", _store(64))
"""In a kernel: write eight bytes at an address."""

put_double = cast("Callable[[int, int], None]", _store(32))
"""In a kernel: write four bytes at an address."""

copy_at = cast("Callable[[int, int, int], None]", intrinsic(_copy))
"""In a kernel: copy to an address, from an address, so many bytes; they do not overlap."""

call_at = cast("Callable[[int, int], None]", intrinsic(_call))
"""In a kernel: call the C function at an address with a pointer, or a word; it returns nothing."""
