"""Steps on one register, as the checkers of single keys see them."""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = ["RegisterStep"]


class RegisterStep(NamedTuple):
    """An operation on one register.

    Attributes:
        kind: `refused` is a compare-and-set that found something else than `expected`.
        returned_ns: None: it may take effect at any time, or never.
    """

    kind: Literal["read", "write", "set", "refused"]
    invoked_ns: int
    returned_ns: int | None
    value: str | None = None
    expected: str | None = None
    operation: int = -1

    def enabled(self, state: str | None) -> bool:
        """Return True if it can happen in a state."""
        if self.kind == "read":
            return state == self.value
        if self.kind == "write":
            return True
        return (state == self.expected) == (self.kind == "set")

    def after(self, state: str | None) -> str | None:
        """The state after it."""
        return self.value if self.kind in {"write", "set"} else state
