"""Verify data that were there before a constraint: list the violations at one snapshot.

A constraint holds for every write after its declaration. So once all data of a snapshot after the
declaration keep it, all data keep it for good, and the constraint is *valid* (PostgreSQL's NOT
VALID and VALIDATE CONSTRAINT). A unique constraint also needs an index key for each value: those of
older values are made by writing such values again, unchanged, at the versions that were seen. One
with an end is written with the time that it has left: by commit times, as the last verdict told
them. That is exact but for the time that a transaction takes.

A key that has an end goes without a transaction. So while a key that must stay has one from before
the constraint, `required` does not hold for good, and is violated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from streamydb.client.problems import (
    AbortedError,
    CheckFailedError,
    ConflictError,
    ConstraintViolatedError,
    TooLargeError,
)
from streamydb.constraints.core import Constraint, parse
from streamydb.records import CONSTRAINTS_KEY, canonical
from streamydb.records.names import RESERVED

if TYPE_CHECKING:
    from streamydb.client import Client, Entry

# Clients may go on writing a value while its index key is made.
_ROUNDS_MAX = 10
# Each transaction takes a micro-batch, however many index keys it makes.
_TOGETHER = 64


class Violation(NamedTuple):
    """A key whose value a constraint does not allow; ``violated``: the rule.

    Of a range with too many keys it is the prefix, and the highest version in it.
    """

    constraint: str
    key: str
    version: int
    violated: str


class VerificationReport(NamedTuple):
    """The outcome of a verification; all data keep the constraints that are ``valid``."""

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
    rules_wanted = [rule for rule in rules if name in (None, rule.name)]
    if name is not None and not rules_wanted:
        raise KeyError(name)
    report = VerificationReport(seq, 0, 0, [], [])
    for rule in rules_wanted:
        judged = _verify_constraint(client, rule, seq, violations_max - len(report.violations))
        valid = [] if judged.broken else [rule.name]
        if valid:
            proof = {"name": rule.name, "since": rule.since, "at": seq}
            client.transaction(constrain={"validate": proof})
        report = VerificationReport(
            seq, report.keys + judged.keys, report.indexed + judged.indexed,
            report.violations + judged.broken, report.valid + valid,
        )  # fmt: skip
        if len(report.violations) >= violations_max:
            break
    return report


class _ConstraintReport(NamedTuple):
    keys: int
    indexed: int
    broken: list[Violation]


def _verify_constraint(
    client: Client, rule: Constraint, at: int, violations_max: int
) -> _ConstraintReport:
    """Judge all values at a snapshot; make index keys up to the first violation."""
    keys = indexed = 0
    broken: list[Violation] = []
    groups: dict[str, tuple[int, int]] = {}
    waiting: list[Entry] = []
    for entry in client.scan(rule.prefix, at=at):
        if entry.key.startswith(RESERVED):
            continue
        keys += 1
        faults = list(_faults(rule, entry))
        _count(rule, entry, groups)
        if rule.unique is not None and not (broken or faults):
            waiting.append(entry)
        if waiting and (faults or len(waiting) == _TOGETHER):
            made, taken = _make_index_keys(client, rule, waiting, at)
            waiting, indexed, broken = [], indexed + made, broken + taken
        broken += faults
        if len(broken) >= violations_max:
            return _ConstraintReport(keys, indexed, broken)
    if waiting:
        made, taken = _make_index_keys(client, rule, waiting, at)
        indexed, broken = indexed + made, broken + taken
    broken += [
        Violation(rule.name, prefix, version, rule.crowded)
        for prefix, (count, version) in groups.items()
        if count > (rule.keys_max or 0)
    ]
    return _ConstraintReport(keys, indexed, broken)


def _faults(rule: Constraint, entry: Entry) -> Iterator[Violation]:
    fault = rule.fault(entry.value)
    if fault is None and rule.required and entry.expires_ms is not None:
        fault = "required"
    if fault is not None:
        yield Violation(rule.name, entry.key, entry.version, fault)


def _count(rule: Constraint, entry: Entry, groups: dict[str, tuple[int, int]]) -> None:
    group = rule.group(entry.key)
    if group is not None:
        count, version = groups.get(group.begin, (0, 0))
        groups[group.begin] = count + 1, max(version, entry.version)


def _make_index_keys(
    client: Client, rule: Constraint, entries: list[Entry], at: int
) -> tuple[int, list[Violation]]:
    """Make the index keys that values lack, up to the first that another key has; return both."""
    index_keys = [(key, entry) for entry in entries if (key := _index_key(rule, entry)) is not None]
    holders = client.read({key for key, _ in index_keys}, at=at) if index_keys else {}
    lacking = [(key, entry) for key, entry in index_keys if holders[key] != entry.key]
    if len(lacking) == len(dict(lacking)) > 1:
        try:
            _write_again(client, dict(lacking))
        except (AbortedError, TooLargeError):
            pass  # the halves show which
        else:
            return len(lacking), []
    left = [entry for _, entry in lacking]
    if len(left) < 2:
        made = [_make_index_key(client, rule, entry, at) for entry in left]
        return made.count(True), [each for each in made if isinstance(each, Violation)]
    middle = len(left) // 2
    first, taken = _make_index_keys(client, rule, left[:middle], at)
    if taken:
        return first, taken
    second, taken = _make_index_keys(client, rule, left[middle:], at)
    return first + second, taken


def _index_key(rule: Constraint, entry: Entry) -> str | None:
    """The index key that a value must have and may lack; None if it needs none, or has it."""
    if not entry.exists or entry.version > rule.since:
        return None  # written, or gone, since the constraint holds
    return rule.index_key(canonical(entry.value))


def _write_again(client: Client, lacking: Mapping[str, Entry]) -> None:
    """Write values again, unchanged, with their index keys."""
    now_ms = 0
    if any(entry.expires_ms is not None for entry in lacking.values()):
        client.transaction()  # its verdict tells the commit time
        now_ms = client.session.correction.now_ms()
    client.transaction(
        checks=[{"key": entry.key, "version": entry.version} for entry in lacking.values()],
        updates=[
            {"op": "put", "key": entry.key, "value": entry.value, **_left(entry, now_ms)}
            for entry in lacking.values()
        ],
        locks=list(lacking),
    )


def _make_index_key(client: Client, rule: Constraint, entry: Entry, at: int) -> bool | Violation:
    """Make the index key of a value; return whether it was missing, or which key has it."""
    for _ in range(_ROUNDS_MAX):
        key = _index_key(rule, entry)
        if key is None or client.get(key, at=at) == entry.key:
            return False
        try:
            _write_again(client, {key: entry})
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


def _left(entry: Entry, now_ms: int) -> dict[str, int]:
    """Return the field of a put that lets a key end when it was to end. ``now_ms``: the commit time
    now.
    """
    if entry.expires_ms is None:
        return {}
    return {"ttl_ms": max(1, entry.expires_ms - now_ms)}
