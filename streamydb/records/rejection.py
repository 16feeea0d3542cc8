"""The reason why a record is not a transaction: one stable code, found in a fixed order.

The order: null or empty value, size, depth, JSON syntax, shape, id, keys, values, counts, duplicate
updates, reserved keys, a call, deploy or constrain that is not alone. Only what the typed decoder
of ``records.transaction`` refuses comes here, so this is plain rather than fast, and it asks no
library for its opinion beyond "is this JSON".
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from streamydb import errors, limits
from streamydb.errors import ValueRejected
from streamydb.records.formats import UNREADABLE
from streamydb.records.marker import decode_marker
from streamydb.records.names import (
    FLOWS_PREFIX,
    FOLLOW_UP_ID,
    FOLLOW_UP_PREFIX,
    HASH,
    MODULES_PREFIX,
    NAME,
    RESERVED,
    UNIQUE_PREFIX,
    WINDOWS_PREFIX,
)
from streamydb.records.ranges import end_of_prefix
from streamydb.records.values import canonical, deeper_than, is_number, outermost_field

if TYPE_CHECKING:
    from streamydb.records.marker import Marker


class Rejection(msgspec.Struct, gc=False, frozen=True):
    """A record that is not a transaction: its reason code, and its id if one can be read."""

    code: str
    id: str | None


_check_syntax = msgspec.json.Decoder(msgspec.Raw).decode
_NOT_OF_FOLLOW_UPS: Final = ("asserts", "checks", "reads", "updates", "locks", "deadline_ms")


def explain(raw: bytes | None) -> Marker | Rejection:
    """The marker in a record, or the reason why the record is not a transaction. Never raises."""
    if raw is None:
        return Rejection(errors.NULL_VALUE, None)
    marker = decode_marker(raw)
    if marker is not None:
        return marker
    if len(raw) > limits.TRANSACTION_BYTES_MAX:
        return Rejection(errors.TRANSACTION_TOO_LARGE, valid_id(outermost_field(raw, "id")))
    if deeper_than(raw, limits.DEPTH_MAX):
        return Rejection(errors.TOO_DEEP, valid_id(outermost_field(raw, "id")))
    try:
        text = raw.decode()
        _check_syntax(raw)
        record = json.loads(text, parse_int=_parse_int, parse_float=_parse_float)
    except (*UNREADABLE, ValueError):
        return Rejection(errors.INVALID_JSON, None)
    name = valid_id(record.get("id")) if isinstance(record, dict) else None
    try:
        _check(record)
    except ValueRejected as fault:
        return Rejection(fault.code, name)
    return Rejection(errors.INVALID_TRANSACTION, name)


def valid_id(value: Any) -> str | None:
    """The value if it may be the id of a transaction, else None."""
    if not isinstance(value, str) or not 1 <= len(value.encode()) <= limits.ID_BYTES_MAX:
        return None
    return None if min(value) < " " else value


def valid_key(value: Any) -> bool:
    return isinstance(value, str) and 1 <= len(value.encode()) <= limits.KEY_BYTES_MAX


def _check(record: Any) -> None:
    """Raise ValueRejected with the code of the first fault; return if there is none."""
    _require(shape_fits(record))
    _require(valid_id(record.get("id")) is not None, errors.INVALID_ID)
    asserts, checks = record.get("asserts", {}), record.get("checks", [])
    reads, updates = record.get("reads", []), record.get("updates", [])
    call, deploy = record.get("call"), record.get("deploy")
    constrain = record.get("constrain")
    locks = record.get("locks", [])
    ranged = [each["range"] for each in (*checks, *locks, *reads) if is_ranged(each)]
    names = [*asserts, *(check["key"] for check in checks if "key" in check)]
    names += [read for read in reads if not is_ranged(read)]
    names += [update["key"] for update in updates]
    names += [lock for lock in locks if not is_ranged(lock)]
    written = [update["key"] for update in updates]
    _require(_id_fits(record), errors.RESERVED_ID)
    if call is not None:
        ranged += call.get("ranges", [])
        names += [*call.get("keys", []), *call.get("reads", [])]
        owner = call["procedure"].partition(".")[0]
        foreign = [key for key in call.get("keys", []) if not lent_to(owner, key)]
        written = [*written, *foreign]
    bounds = [bound for named_range in ranged for bound in named_range.values()]
    _require(all(map(valid_key, [*names, *bounds])), errors.INVALID_KEY)
    _check_values(asserts, checks, updates)
    if call is not None:
        canonical(call.get("args", {}))
        names.append(MODULES_PREFIX + call["procedure"].partition(".")[0])
    if deploy is not None:
        value = {"hash": deploy["hash"], "procedures": deploy["procedures"]}
        _require(len(canonical(value)) <= limits.VALUE_BYTES_MAX, errors.VALUE_TOO_LARGE)
    if constrain is not None:
        _require(len(canonical(constrain)) <= limits.VALUE_BYTES_MAX, errors.VALUE_TOO_LARGE)
    different = len(set(names)) + len({_bounds(named_range) for named_range in ranged})
    _require(different <= limits.KEYS_PER_TRANSACTION_MAX, errors.TOO_MANY_KEYS)
    _require(len({update["key"] for update in updates}) == len(updates), errors.DUPLICATE_UPDATE)
    _require(not any(key.startswith(RESERVED) for key in written), errors.RESERVED_KEY)
    parts = (bool(updates), call is not None, deploy is not None, constrain is not None)
    _require(sum(parts) <= 1, errors.CALL_NOT_ALONE)


def _bounds(named_range: dict[str, str]) -> tuple[bytes, bytes]:
    if "prefix" in named_range:
        first = named_range["prefix"].encode()
        return first, end_of_prefix(first)
    return named_range["start"].encode(), named_range["end"].encode()


def _id_fits(record: dict[str, Any]) -> bool:
    """Return True if an id that is a follow-up's stands on one, and on nothing else."""
    if record.get("call", {}).get("batch") is None:
        return not record["id"].startswith(FOLLOW_UP_PREFIX)
    owner = record["call"]["procedure"].partition(".")[0]
    return (
        re.fullmatch(FOLLOW_UP_ID, record["id"]) is not None
        and not any(record.get(name) for name in _NOT_OF_FOLLOW_UPS)
        and FLOWS_PREFIX + owner in record["call"].get("keys", [])
    )


def lent_to(module: str, key: Any) -> bool:
    """Return True if a reserved key may be among the keys of a call of ``module``."""
    if not isinstance(key, str) or key == FLOWS_PREFIX + module:
        return isinstance(key, str)
    prefix = f"{WINDOWS_PREFIX}{module}."
    return key.startswith(prefix) and re.fullmatch(NAME, key[len(prefix) :]) is not None


def _check_values(asserts: Any, checks: Any, updates: Any) -> None:
    """Values in the order of the payload: asserts, checks, updates."""
    for value in _values(asserts, checks):
        data = canonical(value)
        _require(len(data) <= limits.VALUE_BYTES_MAX, errors.VALUE_TOO_LARGE)
    for update in updates:
        for name in ("by", "min", "max", "value"):
            if name in update:
                _require(update[name] is not None or update["op"] != "put", errors.NULL_VALUE)
                data = canonical(update[name])
                _require(len(data) <= limits.VALUE_BYTES_MAX, errors.VALUE_TOO_LARGE)


def _values(asserts: Any, checks: Any) -> Iterator[Any]:
    yield from asserts.values()
    for check in checks:
        yield from (check[name] for name in check if name not in ("key", "exists", "range"))


def _require(holds: object, code: str = errors.INVALID_TRANSACTION) -> None:
    if not holds:
        raise ValueRejected(code, "The record is not a transaction.")


def _parse_int(digits: str) -> int:
    """An integer; one too long for 64 bits becomes some integer that does not fit either."""
    return int(digits) if len(digits) <= 20 else _beyond(digits)


def _parse_float(digits: str) -> int | float:
    """A float; one beyond the range of a double becomes an integer that does not fit."""
    number = float(digits)
    return number if math.isfinite(number) else _beyond(digits)


def _beyond(digits: str) -> int:
    return -(1 << 64) if digits.startswith("-") else 1 << 64


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
