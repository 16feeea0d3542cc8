"""Partial updates of documents: JSON merge patches, and operations on dotted paths."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from streamydb_layers.errors import UpdateError

Document = dict[str, Any]
_ABSENT = object()


def merge_patch(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch to a value (RFC 7396, section 2); both stay as they are."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


@dataclass(frozen=True, slots=True)
class Update:
    """Operations on dotted paths, like `address.city`.

    Attributes:
        set: path -> value; objects on the way are made.
        inc: path -> number to add; what is absent counts as 0.
        push: path -> value to append; what is absent counts as an empty list.
        unset: paths to remove, if they are there.
    """

    set: Mapping[str, Any] = field(default_factory=dict)
    inc: Mapping[str, float] = field(default_factory=dict)
    push: Mapping[str, Any] = field(default_factory=dict)
    unset: Iterable[str] = ()

    def apply(self, document: Document) -> Document:
        """Apply the change to a document, which stays as it is.
        Raises UpdateError: a path leads through something that is no object, or to what cannot be
        added or appended to; or one path is part of another.
        """
        unset = [self.unset] if isinstance(self.unset, str) else list(self.unset)
        _check_apart([*self.set, *self.inc, *self.push, *unset])
        changed = document
        for path in unset:
            if at_path(changed, path, _ABSENT) is not _ABSENT:
                changed = _with(changed, path.split("."), path, _ABSENT)
        for path, value in self.set.items():
            changed = _with(changed, path.split("."), path, value)
        for path, by in self.inc.items():
            changed = _with(changed, path.split("."), path, _sum(changed, path, by))
        for path, value in self.push.items():
            changed = _with(changed, path.split("."), path, [*_list(changed, path), value])
        return changed


def at_path(document: Mapping[str, Any], path: str, default: Any = None) -> Any:
    """The value at a dotted path, ``default`` if there is none."""
    value: Any = document
    for name in path.split("."):
        if not isinstance(value, Mapping) or name not in value:
            return default
        value = value[name]
    return value


def _with(target: Any, names: list[str], path: str, value: Any) -> Any:
    """A copy of an object that has a value at a path; or, with `_ABSENT`, has it not."""
    if target is not None and not isinstance(target, Mapping):
        raise UpdateError(f"{path}: what is before {names[0]!r} is no object.")
    name, rest = names[0], names[1:]
    changed = dict(target or {})
    if rest:
        changed[name] = _with(changed.get(name), rest, path, value)
    elif value is _ABSENT:
        changed.pop(name, None)
    else:
        changed[name] = value
    return changed


def _sum(document: Document, path: str, by: float) -> float:
    before = at_path(document, path, 0)
    for number in (before, by):
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise UpdateError(f"{path}: only numbers are added.")
    total: float = before + by
    return total


def _list(document: Document, path: str) -> list[Any]:
    before = at_path(document, path, [])
    if not isinstance(before, list):
        raise UpdateError(f"{path}: only to lists is appended.")
    return before


def _check_apart(paths: list[str]) -> None:
    """Refuse paths of which one is part of another, as their order would matter."""
    if not all(isinstance(path, str) and path for path in paths):
        raise UpdateError("A path is text, like address.city.")
    split = sorted(path.split(".") for path in paths)
    for one, two in pairwise(split):
        if two[: len(one)] == one:
            raise UpdateError(f"{'.'.join(one)} and {'.'.join(two)} overlap.")
