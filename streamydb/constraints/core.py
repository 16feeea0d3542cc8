"""Declarations of constraints, and the rules that a value violates.

Pure: the same bytes give the same answer everywhere.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from streamydb.constraints.schema import DeclarationRefused, Schema, compile_schema
from streamydb.errors import InvariantViolation
from streamydb.limits import (
    CONSTRAINT_NAME_CHARACTERS_MAX,
    CONSTRAINTS_MAX,
    KEY_BYTES_MAX,
    RANGE_KEYS_MAX,
    VALUE_BYTES_MAX,
)
from streamydb.procedures.texts import pinned_repr
from streamydb.records import canonical, decode_value, is_number
from streamydb.records.names import RESERVED, UNIQUE_PREFIX
from streamydb.records.ranges import Range

_NAME: Final = re.compile(rf"[A-Za-z_][A-Za-z0-9_-]{{0,{CONSTRAINT_NAME_CHARACTERS_MAX - 1}}}")
_PATH: Final = re.compile(r"\$(\.[A-Za-z_][A-Za-z0-9_]*){0,8}")
_RULES: Final = frozenset({"type", "min", "max", "length", "schema", "required", "unique", "keys"})
_TYPES: Final[Mapping[str, Callable[[Any], bool]]] = {
    "number": is_number,
    "integer": lambda value: type(value) is int,
    "string": lambda value: type(value) is str,
    "boolean": lambda value: type(value) is bool,
    "list": lambda value: type(value) is list,
    "object": lambda value: type(value) is dict,
}
_ABSENT: Final = object()


@dataclass(frozen=True, slots=True)
class Constraint:
    """A rule for the values under a prefix.

    Attributes:
        name: its name.
        prefix: of the keys that it holds for; "" = all keys of users.
        since: the seq of its declaration.
        valid: the seq up to which what was there before is known to keep it; None: unknown.
        required: whether a key that is there must not be deleted.
        unique: the path of what must be unique among the values, as names; None: nothing must.
        keys_max: how many keys a group may have; None: any number.
        each: a group is of the keys that are equal up to it, behind the prefix; None: all keys are
            one group.
        declared: the declaration as it was given.
    """

    name: str
    prefix: str
    since: int
    valid: int | None
    required: bool
    unique: tuple[str, ...] | None
    keys_max: int | None
    each: str | None
    declared: dict[str, Any]
    schema: Schema | None

    def fault(self, value: Any) -> str | None:
        """Say what is wrong with a value that is to be stored; None: nothing.

        The first word is the rule, the rest says where and what was wanted.
        """
        rules = self.declared
        type_name = rules.get("type")
        if type_name is not None and not _TYPES[type_name](value):
            return f"type {type_name}"
        if "min" in rules and not (is_number(value) and value >= rules["min"]):
            return f"min {text_of(rules['min'])}"
        if "max" in rules and not (is_number(value) and value <= rules["max"]):
            return f"max {text_of(rules['max'])}"
        if "length" in rules:
            low, high = rules["length"].get("min", 0), rules["length"].get("max")
            if not isinstance(value, str | list):
                return "length of a string or list"
            if len(value) < low:
                return f"length at least {low}"
            if high is not None and len(value) > high:
                return f"length at most {high}"
        return None if self.schema is None else self.schema.fault(value)

    @property
    def crowded(self) -> str:
        """The rule that a group breaks which has too many keys."""
        return f"keys at most {self.keys_max}"

    def group(self, key: str) -> Range | None:
        """Return the range whose keys are counted together with a key; None: it is not counted."""
        if self.keys_max is None:
            return None
        if self.each is None:
            return Range(prefix=self.prefix)
        at = key.find(self.each, len(self.prefix))
        return None if at < 0 else Range(prefix=key[: at + len(self.each)])

    def index_key(self, value: bytes | None) -> str | None:
        """The reserved key that stands for the unique part of a stored value; None: it has none."""
        if self.unique is None or value is None:
            return None
        part = decode_value(value)
        for name in self.unique:
            part = part.get(name, _ABSENT) if type(part) is dict else _ABSENT
        if part is _ABSENT or part is None:
            return None
        # a list may be deeper by one than what `canonical` takes
        digest = hashlib.sha256(canonical(part) if self.unique else value).hexdigest()
        return f"{UNIQUE_PREFIX}{self.name}/{self.since}/{digest}"


class Constraints(NamedTuple):
    """All constraints that hold, in the order of their names."""

    all: tuple[Constraint, ...] = ()

    def covering(self, key: str) -> list[Constraint]:
        """Those that hold for a key; none for the keys of the database itself."""
        if key.startswith(RESERVED):
            return []
        return [rule for rule in self.all if key.startswith(rule.prefix)]

    def is_live(self, index_key: str) -> bool:
        """Return True if an index key belongs to a constraint that holds."""
        return any(
            rule.unique is not None
            and index_key.startswith(f"{UNIQUE_PREFIX}{rule.name}/{rule.since}/")
            for rule in self.all
        )


def text_of(value: Any) -> str:
    """A value as the canonical text that users see."""
    return canonical(value).decode()


@lru_cache(maxsize=64)
def parse(value: bytes | None) -> Constraints:
    """The constraints in the value of their key (None: absent)."""
    if value is None:
        return Constraints()
    entries: dict[str, Any] = msgspec.json.decode(value)
    try:
        return Constraints(tuple(_made(name, entries[name]) for name in sorted(entries)))
    except DeclarationRefused as fault:
        raise InvariantViolation(f"a stored constraint is refused now: {fault}") from fault


def _made(name: str, entry: dict[str, Any]) -> Constraint:
    declared = {rule: entry[rule] for rule in entry if rule not in ("since", "valid")}
    unique = declared.get("unique")
    schema, keys = declared.get("schema"), declared.get("keys", {})
    return Constraint(
        name,
        entry["prefix"],
        entry["since"],
        entry.get("valid"),
        declared.get("required", False),
        None if unique is None else tuple(unique.split(".")[1:]),
        keys.get("max"),
        keys.get("each"),
        declared,
        None if schema is None else compile_schema(schema),
    )


def amended(current: bytes | None, wanted: bytes, seq: int) -> bytes | None:
    """The value of the constraints' key after a `constrain` at ``seq``; None: none is left.

    Args:
        current: the value before.
        wanted: the canonical bytes of the field `constrain`.
        seq: the transaction's place.

    Raises DeclarationRefused: it makes no sense; says why.
    """
    entries: dict[str, Any] = {} if current is None else msgspec.json.decode(current)
    ((what, content),) = msgspec.json.decode(wanted).items()
    if what == "declare":
        _check_declaration(content)
        name = content["name"]
        kept = {rule: content[rule] for rule in content if rule != "name"}
        entries[name] = {**kept, "since": seq}
        if current is None or name not in msgspec.json.decode(current):
            _require(len(entries) <= CONSTRAINTS_MAX, f"there are {CONSTRAINTS_MAX} constraints")
    elif what == "drop":
        _require(content in entries, f"there is no constraint {pinned_repr(content)}")
        del entries[content]
    else:
        # Note that all data keep a constraint, because a client has verified it at a snapshot.
        _require(content.keys() == {"name", "since", "at"}, "validate takes name, since and at")
        entry = entries.get(content["name"]) if type(content["name"]) is str else None
        _require(entry is not None, "there is no such constraint")
        since, at = content["since"], content["at"]
        _require(type(since) is int and type(at) is int, "since and at are seqs")
        _require(entry is not None and entry["since"] == since, "it was declared anew meanwhile")
        _require(at >= since, "a snapshot before the declaration proves nothing")
        if entry is not None:
            entry["valid"] = at
    if not entries:
        return None
    value = canonical(entries)
    _require(len(value) <= VALUE_BYTES_MAX, f"all together are over {VALUE_BYTES_MAX} bytes")
    return value


def _check_declaration(given: dict[str, Any]) -> None:
    unknown = given.keys() - _RULES - {"name", "prefix"}
    _require(not unknown, f"no such rule: {', '.join(sorted(unknown))}")
    name, prefix = given.get("name"), given.get("prefix")
    _require(type(name) is str and _NAME.fullmatch(name) is not None,
             f"a name is a letter, then up to {CONSTRAINT_NAME_CHARACTERS_MAX - 1} letters, "
             "digits, _ and -")  # fmt: skip
    _require(type(prefix) is str and len(prefix.encode()) <= KEY_BYTES_MAX, "prefix is a text")
    _require(type(prefix) is str and not prefix.startswith(RESERVED), "keys with $ are reserved")
    _require(bool(given.keys() & _RULES), f"give a rule: {', '.join(sorted(_RULES))}")
    if "type" in given:
        known = type(given["type"]) is str and given["type"] in _TYPES
        _require(known, f"type is one of {', '.join(_TYPES)}")
    for bound in ("min", "max"):
        _require(is_number(given.get(bound, 0)), f"{bound} is a number")
    if "length" in given:
        _check_length(given["length"])
    if "required" in given:
        _require(given["required"] is True, "required is true or left out")
    if "unique" in given:
        path = given["unique"]
        fits = type(path) is str and _PATH.fullmatch(path) is not None
        _require(fits, "unique is $ (the value) or a path of up to 8 names such as $.email")
    if "schema" in given:
        compile_schema(given["schema"])
    if "keys" in given:
        _check_keys(given["keys"], prefix)


def _check_keys(keys: Any, prefix: Any) -> None:
    fits = type(keys) is dict and {"max"} <= keys.keys() <= {"max", "each"}
    fits = fits and type(keys["max"]) is int and 1 <= keys["max"] <= RANGE_KEYS_MAX
    text = 'keys is {"max": n}, or {"max": n, "each": "/"}; n is 1 to ' + str(RANGE_KEYS_MAX)
    _require(fits, text)
    each = keys.get("each", prefix)
    fits = type(each) is str and 1 <= len(each.encode()) <= KEY_BYTES_MAX
    _require(fits, "keys counts all keys of a prefix that is not empty, or each is a text")


def _check_length(length: Any) -> None:
    fits = (
        type(length) is dict
        and length.keys() <= {"min", "max"}
        and bool(length)
        and all(type(bound) is int and bound >= 0 for bound in length.values())
    )
    _require(fits, 'length is {"min": n, "max": n} or one of them')


def _require(holds: object, reason: str) -> None:
    if not holds:
        raise DeclarationRefused(reason)
