"""Verify data that were there before a constraint: list the violations at one snapshot.

A constraint holds for every write after its declaration. So once all data of a snapshot after the
declaration keep it, all data keep it for good, and the constraint is *valid* (PostgreSQL's NOT
VALID and VALIDATE CONSTRAINT). A unique constraint also needs an index key for each value: those of
older values are made by writing such a value again, unchanged, at the version that was seen. One
with an end is written with the time that it has left, by this machine's clock.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from streamydb.client.aborts import CheckFailedError, ConflictError, ConstraintViolatedError
from streamydb.constraints.core import Constraint, parse
from streamydb.records import CONSTRAINTS_KEY, canonical
from streamydb.records.names import RESERVED

if TYPE_CHECKING:
    from streamydb.client import Client, Entry

__all__ = ["VerificationReport", "Violation", "verify"]

# Clients may go on writing a value while its index key is made.
_ROUNDS_MAX = 10


class Violation(NamedTuple):
    """A key whose value a constraint does not allow; ``violated``: the rule.

    Of a range with too many keys it is the prefix, and the highest version in it.
    """

    constraint: str
    key: str
    version: int
    violated: str


class VerificationReport(NamedTuple):
    """The outcome of a verification: ``valid`` are the constraints that all data keep, now noted as
    such.
    """

    seq: int
    keys: int
    indexed: int
    violations: list[Violation]
    valid: list[str]


def verify(
    client: Client, name: str | None = None, *, violations_max: int = 1_000
) -> VerificationReport:
    """Verify one constraint, or all; note those that all data keep as valid.

    Raises:
        KeyError: there is no such constraint.
        ConflictError: a key changed in each of several rounds while its index key was made.
        ClientError: the database does not answer.

    """
    first = client.read([CONSTRAINTS_KEY])
    seq, value = first.seq, first[CONSTRAINTS_KEY]
    rules = parse(None if value is None else canonical(value)).all
    wanted = [rule for rule in rules if name in (None, rule.name)]
    if name is not None and not wanted:
        raise KeyError(name)
    keys = indexed = 0
    found: list[Violation] = []
    valid: list[str] = []
    for rule in wanted:
        broken: list[Violation] = []
        groups: dict[str, tuple[int, int]] = {}
        for entry in client.scan(rule.prefix, at=seq):
            if entry.key.startswith(RESERVED):
                continue
            keys += 1
            broken += _faults(rule, entry)
            _count(rule, entry, groups)
            if rule.unique is not None and not broken:
                made = _indexed(client, rule, entry, seq)
                indexed += made is True
                broken += [made] if isinstance(made, Violation) else []
            if len(found) + len(broken) >= violations_max:
                return VerificationReport(seq, keys, indexed, [*found, *broken], valid)
        broken += [
            Violation(rule.name, prefix, version, rule.crowded)
            for prefix, (count, version) in groups.items() if count > (rule.keys_max or 0)
        ]
        if not broken:
            proof = {"name": rule.name, "since": rule.since, "at": seq}
            client.transaction(constrain={"validate": proof})
            valid.append(rule.name)
        found += broken
    return VerificationReport(seq, keys, indexed, found, valid)


def _faults(rule: Constraint, entry: Entry) -> Iterator[Violation]:
    fault = rule.fault(entry.value)
    if fault is not None:
        yield Violation(rule.name, entry.key, entry.version, fault)


def _count(rule: Constraint, entry: Entry, groups: dict[str, tuple[int, int]]) -> None:
    """Count a key in its group, if the rule counts keys."""
    group = rule.group(entry.key)
    if group is not None:
        count, version = groups.get(group.begin, (0, 0))
        groups[group.begin] = count + 1, max(version, entry.version)


def _indexed(client: Client, rule: Constraint, entry: Entry, at: int) -> bool | Violation:
    """Make the index key of a value; return whether it was missing, or which key has it."""
    for _ in range(_ROUNDS_MAX):
        if not entry.exists or entry.version > rule.since:
            return False  # written, or gone, since the constraint holds
        key = rule.index_key(canonical(entry.value))
        if key is None:
            return False
        if client.get(key, at=at) == entry.key:
            return False
        try:
            client.transaction(
                checks=[{"key": entry.key, "version": entry.version}],
                updates=[{"op": "put", "key": entry.key, "value": entry.value, **_left(entry)}],
                locks=[key],
            )
        except ConstraintViolatedError as error:
            why = error.violated or ""
            if error.constraint != rule.name:
                why = f"unique cannot be told: it also violates {error.constraint}"
            return Violation(rule.name, entry.key, entry.version, why)
        except CheckFailedError:
            entry = client.entry(entry.key)
            continue
        return True
    raise ConflictError(f"{entry.key} changed in each of {_ROUNDS_MAX} rounds; verify again later")


def _left(entry: Entry) -> dict[str, int]:
    """The field of a put that lets a key end when it was to end; none if it has no end."""
    if entry.expires_ms is None:
        return {}
    return {"ttl_ms": max(1, entry.expires_ms - time.time_ns() // 1_000_000)}
