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
    MODULES_PREFIX,
    NAME,
    RESERVED,
    WINDOWS_PREFIX,
)
from streamydb.records.shape import is_ranged, shape_fits
from streamydb.records.values import canonical, deeper_than, outermost_field

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
    first = (named_range["prefix"] if "prefix" in named_range else named_range["start"]).encode()
    last = (
        first[:-1] + bytes([first[-1] + 1])
        if "prefix" in named_range
        else named_range["end"].encode()
    )
    return first, last


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
