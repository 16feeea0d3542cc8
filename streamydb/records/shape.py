"""The shape that the record of a transaction has to have: which fields, and of which types."""

from __future__ import annotations

import re
from typing import Any, Final

from streamydb import limits
from streamydb.records.names import HASH, NAME, UNIQUE_PREFIX
from streamydb.records.values import is_number

_FIELDS: Final = {"id", "asserts", "checks", "reads", "updates", "call", "deploy",
                  "constrain", "locks", "deadline_ms"}  # fmt: skip
_CALL_FIELDS: Final = {"procedure", "args", "keys", "reads", "ranges", "batch"}
_BATCH_FIELDS: Final = {"id", "stream", "number", "depth"}
_DEPLOY_FIELDS: Final = {"module", "hash", "procedures"}
_CONSTRAIN_PARTS: Final = {"declare": dict, "drop": str, "validate": dict}

_ORDERINGS: Final = ("lt", "le", "gt", "ge")
_COMPARATORS: Final = {"version", "exists", "eq", "ne", *_ORDERINGS}
_COUNTS: Final = ("count", "count_le", "count_ge", "version_le")
_OPERATIONS: Final[dict[str, tuple[set[str], set[str]]]] = {
    "put": ({"value"}, {"ttl_ms"}),
    "delete": (set(), set()),
    "add": ({"by"}, {"min", "max"}),
    "max": ({"value"}, set()),
    "min": ({"value"}, set()),
    "append": ({"value"}, {"ttl_ms"}),
    "next_id": (set(), set()),
    "touch": (set(), {"ttl_ms"}),
}
"""Operation -> (fields it needs beside op and key, fields it may have)."""
_NUMERIC: Final = {"add", "max", "min"}


def shape_fits(record: Any) -> bool:
    """Return True if all fields have their types; ids, keys and the insides of values aside."""
    if not isinstance(record, dict) or not record.keys() <= _FIELDS:
        return False
    lists = [record.get(name, []) for name in ("checks", "reads", "updates")]
    if not isinstance(record.get("asserts", {}), dict) or not all(
        isinstance(x, list) for x in lists
    ):
        return False
    if "call" in record and not _call_fits(record["call"]):
        return False
    if "deploy" in record and not _deploy_fits(record["deploy"]):
        return False
    if "constrain" in record and not constrain_fits(record["constrain"]):
        return False
    deadline = record.get("deadline_ms", 1)
    if type(deadline) is not int or not 1 <= deadline <= limits.INTEGER_MAX:
        return False
    locks = record.get("locks", [])
    if not isinstance(locks, list):
        return False
    index_locks = [lock for lock in locks if not is_ranged(lock)]
    if not all(isinstance(lock, str) and lock.startswith(UNIQUE_PREFIX) for lock in index_locks):
        return False
    if not all(map(_range_read_fits, filter(is_ranged, [*lists[1], *locks]))):
        return False
    checks = [check for check in lists[0] if not is_ranged(check)]
    ranged = [check for check in lists[0] if is_ranged(check)]
    if not all(map(_check_fits, checks)) or not all(map(_range_check_fits, ranged)):
        return False
    return all(map(_update_fits, lists[2]))


def is_ranged(part: Any) -> bool:
    """Return True if a check or a read names a range."""
    return isinstance(part, dict) and "range" in part


def _range_read_fits(read: dict[str, Any]) -> bool:
    return read.keys() == {"range"} and _range_fits(read["range"])


def _range_fits(bounds: Any) -> bool:
    return isinstance(bounds, dict) and bounds.keys() in ({"prefix"}, {"start", "end"})


def _range_check_fits(check: dict[str, Any]) -> bool:
    comparators = check.keys() - {"range"}
    if not comparators or not comparators <= {"exists", *_COUNTS}:
        return False
    if not _range_fits(check["range"]):
        return False
    counts = [check[name] for name in _COUNTS if name in check]
    fit = all(type(count) is int and count >= 0 for count in counts)
    return fit and isinstance(check.get("exists", True), bool)


def _call_fits(call: Any) -> bool:
    return (
        isinstance(call, dict)
        and call.keys() <= _CALL_FIELDS
        and _matches(rf"{NAME}\.{NAME}", call.get("procedure"))
        and isinstance(call.get("args", {}), dict)
        and isinstance(call.get("keys", []), list)
        and isinstance(call.get("reads", []), list)
        and isinstance(call.get("ranges", []), list)
        and all(map(_range_fits, call.get("ranges", [])))
        and ("batch" not in call or _batch_fits(call["batch"]))
    )


def _batch_fits(batch: Any) -> bool:
    if not isinstance(batch, dict) or batch.keys() != _BATCH_FIELDS:
        return False
    numbers = [batch[name] for name in ("id", "number", "depth")]
    return _matches(NAME, batch["stream"]) and all(
        type(number) is int and 1 <= number <= limits.INTEGER_MAX for number in numbers
    )


def constrain_fits(constrain: Any) -> bool:
    """Return True if the value has the shape of the field `constrain`; the rest is for its
    execution.
    """
    if not isinstance(constrain, dict) or len(constrain) != 1:
        return False
    ((what, content),) = constrain.items()
    return what in _CONSTRAIN_PARTS and isinstance(content, _CONSTRAIN_PARTS[what])


def _deploy_fits(deploy: Any) -> bool:
    if not isinstance(deploy, dict) or deploy.keys() != _DEPLOY_FIELDS:
        return False
    procedures = deploy["procedures"]
    if not _matches(NAME, deploy["module"]) or not _matches(HASH, deploy["hash"]):
        return False
    return isinstance(procedures, dict) and all(
        _matches(NAME, name) and isinstance(names, list) and all(isinstance(n, str) for n in names)
        for name, names in procedures.items()
    )


def _matches(pattern: str, value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(pattern, value) is not None


def _check_fits(check: Any) -> bool:
    if not isinstance(check, dict) or "key" not in check:
        return False
    comparators = check.keys() - {"key"}
    if not comparators or not comparators <= _COMPARATORS:
        return False
    version = check.get("version", 0)
    if type(version) is not int or version < 0 or not isinstance(check.get("exists", True), bool):
        return False
    operands = [check[name] for name in _ORDERINGS if name in check]
    return all(is_number(operand) or isinstance(operand, str) for operand in operands)


def _update_fits(update: Any) -> bool:
    if not isinstance(update, dict) or not isinstance(update.get("op"), str):
        return False
    if update["op"] not in _OPERATIONS:
        return False
    needed, optional = _OPERATIONS[update["op"]]
    fields = update.keys() - {"op"}
    if not needed | {"key"} <= fields <= needed | optional | {"key"}:
        return False
    if update["op"] not in _NUMERIC:
        ttl_ms = update.get("ttl_ms", 1)
        return type(ttl_ms) is int and 1 <= ttl_ms <= limits.TTL_MS_MAX
    return all(is_number(update[name]) for name in fields - {"key"})
