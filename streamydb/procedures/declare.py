"""The names that a module of stored procedures imports: `Abort`, `procedure` and others.

In plain Python these do next to nothing, so that a module can be imported, tested and read like
any other; the pipeline never imports a module, it compiles its text (see `modules`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar, overload

from streamydb.records.ranges import Range

_F = TypeVar("_F", bound=Callable[..., Any])
KeyFunction: TypeAlias = Callable[[dict[str, Any]], "Iterable[str] | Mapping[str, Iterable[Any]]"]
"""Gives the keys of a call from its arguments: a list, or {"keys": [...], "reads": [...],
"ranges": [...]}.

A range is a prefix, or {"prefix": ...}, or {"start": ..., "end": ...}.
"""

_ATTRIBUTE = "__streamydb_keys__"


class DeclaredKeys(NamedTuple):
    """The keys that a call may write, and read, and the ranges that it may scan."""

    keys: list[str]
    reads: list[str]
    ranges: list[Range]


def declared(told: Any) -> DeclaredKeys:
    """Return what a key function has told. Raises TypeError: it is something else."""
    if not isinstance(told, Mapping):
        return DeclaredKeys(_texts(told), [], [])
    ranges = [range_of(each) for each in told.get("ranges", ())]
    return DeclaredKeys(_texts(told.get("keys", ())), _texts(told.get("reads", ())), ranges)


def range_of(told: Any) -> Range:
    """Return a range from a prefix, or from a dict with `prefix`, or `start` and `end`.
    Raises TypeError: it is something else.
    """
    if isinstance(told, Range):
        return told
    bounds = {"prefix": told} if type(told) is str else told
    fits = isinstance(bounds, Mapping) and bounds.keys() in ({"prefix"}, {"start", "end"})
    if not fits or not all(type(bound) is str for bound in bounds.values()):
        raise TypeError("a range is a prefix, or has a prefix, or start and end, which are texts")
    return Range(**bounds)


def _texts(items: Iterable[Any]) -> list[str]:
    found = list(items)
    if not all(type(item) is str for item in found):
        raise TypeError("a key is a text")
    return found


class Abort(BaseException):
    """Raise it in a procedure to abort the transaction; the result gives the reason.

    `except Exception` does not catch it.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Workflow:
    """A module's dataflow graph, of literals: `flow = Workflow(emits={...}, triggers={...})`."""

    def __init__(
        self,
        *,
        emits: Mapping[str, Sequence[str]] | None = None,
        triggers: Mapping[str, Sequence[str]] | None = None,
        windows: Mapping[str, Mapping[str, str | int]] | None = None,
        nested: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """Declare it.

        Args:
            emits: procedure -> the streams that it emits to.
            triggers: stream -> the procedures that are called with its batches.
            windows: name -> owner, and size and slide (in items) or size_ms and slide_ms.
            nested: procedure -> the procedures that it runs within its own transaction.
        """
        self.emits = emits or {}
        self.triggers = triggers or {}
        self.windows = windows or {}
        self.nested = nested or {}


@overload
def procedure(function: _F) -> _F: ...


@overload
def procedure(*, keys: KeyFunction | None = None) -> Callable[[_F], _F]: ...


def procedure(function: Any = None, *, keys: KeyFunction | None = None) -> Any:
    """Mark a function as a stored procedure: `@procedure`, or `@procedure(keys=...)`.

    ``keys`` tells a client which keys and ranges a call with these arguments touches.
    """

    def mark(marked: Any) -> Any:
        setattr(marked, _ATTRIBUTE, keys)
        return marked

    return mark if function is None else mark(function)


def key_function(function: Any) -> KeyFunction | None:
    """The key function that `procedure` was given, if any."""
    found: KeyFunction | None = getattr(function, _ATTRIBUTE, None)
    return found
