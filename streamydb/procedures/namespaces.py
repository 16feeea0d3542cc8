"""The modules that a procedure may import, and the functions of `math` with their charge."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from streamydb.procedures.machine import Machine

__all__ = ["MATH", "Namespace"]

_BITS_PER_STEP: Final = 16
"""Bits of an integer that one step of a function of `math` takes."""


class Namespace:
    """A module that procedures may import: named functions, which get the machine first."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        """Show these names."""
        self._values = values

    def names(self) -> frozenset[str]:
        """All names."""
        return frozenset(self._values)

    def value(self, name: str) -> Any:
        """Return the value of a name.

        Raises:
            AttributeError: there is no such name here.
        """
        if name not in self._values:
            raise AttributeError(f"procedures have no {name} in this module")
        return self._values[name]


def _math(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(machine: Machine, *args: Any) -> Any:
        machine.charge(len(args) // 4)
        for arg in args:
            if type(arg) is int:
                machine.charge(arg.bit_length() // _BITS_PER_STEP)
            machine.integer(arg)
        return machine.integer(function(*args))

    return call


MATH: Final = Namespace(
    {
        **{
            name: _math(getattr(math, name))
            for name in (
                "ceil",
                "copysign",
                "fabs",
                "floor",
                "gcd",
                "isfinite",
                "isinf",
                "isnan",
                "isqrt",
                "sqrt",
                "trunc",
            )
        },
        "inf": math.inf,
        "pi": math.pi,
    }
)
"""The part of `math` that is exact, and so the same on every machine."""
