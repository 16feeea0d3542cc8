"""Make the transactions of requests: their ids, bytes and keys, checked before they are appended.

A request that is sent again must give the same bytes, for the log tells repetitions by their bytes.
So a body keeps the order of its fields and loses only its whitespace, and a written value has its
canonical form. Only a deadline that the facade gives is another each time; the log tells
repetitions whatever their deadlines.

The reason code alone of a refused transaction is in the wire contract. `culprit` looks for the
field at fault, which is told to nobody but the sender.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET

from streamydb import errors, limits
from streamydb.client.session import new_id
from streamydb.facade.auth import Caller
from streamydb.facade.problems import ProblemError
from streamydb.limits import TRANSACTION_BYTES_MAX
from streamydb.records import (
    CONSTRAINTS_KEY,
    Call,
    Check,
    NextId,
    Rejection,
    Transaction,
    decode,
    with_deadline,
)
from streamydb.records.formats import UNREADABLE
from streamydb.records.marker import Marker
from streamydb.records.names import FOLLOW_UP_PREFIX
from streamydb.records.problems import problem_of_rejection
from streamydb.records.rejection import valid_id, valid_key

_Path: TypeAlias = tuple[str | int, ...]

_GIVEN_CHARS_MAX: Final = 100
_STEP: Final = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_SAID: Final = re.compile(r"(?P<what>.*?)(?: - at `\$\.?(?P<path>.*)`)?", re.DOTALL)
_LISTS: Final = frozenset({"checks", "reads", "updates", "keys", "locks"})


class Culprit(NamedTuple):
    """The field at fault, as ``updates[0].by``; what it holds, shortened JSON; what is wrong."""

    field: str
    given: str | None
    wrong: str


def culprit(code: str, payload: bytes) -> Culprit | None:
    """Return the first field that the reason code of a refused payload is about, if one is."""
    try:
        record = json.loads(payload)
        if code == errors.INVALID_TRANSACTION:
            return _of_shape(payload, record)
        if code == errors.DUPLICATE_UPDATE:
            path = _repeated_update(record)
        elif is_at_fault := _AT_FAULT.get(code):
            faults = (place for place, value in _fields(record, ()) if is_at_fault(place, value))
            path = next(faults, None)
        else:
            return None
        if path is None:
            return None
        return Culprit(_path_text(path), _value_text(record, path), errors.REJECTED_CODES[code])
    except (ValueError, RecursionError):  # too deep, or no JSON: there is no field to name
        return None


def _of_shape(payload: bytes, record: Any) -> Culprit | None:
    """Return what the typed decoder says, or a check that compares nothing."""
    try:
        msgspec.json.decode(payload, type=Transaction)
    except UNREADABLE as fault:
        message = _SAID.fullmatch(str(fault))
        if message is None:
            return None
        path = _path_of(message)
        return Culprit(_path_text(path), _value_text(record, path), f"{message['what']}.")
    checks = enumerate(record.get("checks", []))
    bare = [number for number, check in checks if check.keys() <= {"key", "range"}]
    if not bare:
        return None
    path = ("checks", bare[0])
    return Culprit(_path_text(path), _value_text(record, path), "The check compares nothing.")


def place_of(fault: Exception) -> str:
    """Return the field that an error of msgspec names, as ``keys[0]``; empty for the whole."""
    message = _SAID.fullmatch(str(fault))
    return "" if message is None else _path_text(_path_of(message))


def _path_of(message: re.Match[str]) -> _Path:
    steps = _STEP.findall(message["path"] or "")
    return tuple(int(index) if index else name for name, index in steps)


def _fields(value: Any, path: _Path) -> Iterator[tuple[_Path, Any]]:
    yield path, value
    inner = value.items() if isinstance(value, dict) else ()
    for step, each in enumerate(value) if isinstance(value, list) else inner:
        yield from _fields(each, (*path, step))


def _is_no_key(path: _Path, value: Any) -> bool:
    if len(path) == 2 and path[0] == "asserts":
        return not valid_key(path[1])
    named = path[:1] in {("checks",), ("updates",)} and path[2:] == ("key",)
    named = named or (path[:1] in {("checks",), ("reads",)} and path[2:3] == ("range",)
                      and len(path) == 4)  # fmt: skip
    listed = len(path) > 1 and path[-2] in _LISTS and isinstance(path[-1], int)
    listed = listed and (path[0] in {"reads", "locks"} or path[:1] == ("call",))
    return (named or listed) and not valid_key(value)


def _is_written(path: _Path) -> bool:
    return (path[:1] == ("updates",) and path[2:] == ("key",)) or path[:2] == ("call", "keys")


def _is_large(path: _Path, value: Any) -> bool:
    """Return True if a field holds a value whose JSON, about as long as the canonical form, is too
    large.
    """
    top = len(path) == 2 and path[0] == "asserts"
    inner = len(path) == 3 and path[-1] in {"value", "eq", "ne"}
    return (top or inner) and len(json.dumps(value)) > limits.VALUE_BYTES_MAX


def _is_beyond(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    fits = limits.INTEGER_MIN <= value <= limits.INTEGER_MAX if type(value) is int else True
    return not fits


_AT_FAULT: Final[dict[str, Callable[[_Path, Any], bool]]] = {
    errors.INVALID_ID: lambda path, value: path == ("id",) and valid_id(value) is None,
    errors.INVALID_KEY: _is_no_key,
    errors.NULL_VALUE: lambda path, value: (
        path[:1] == ("updates",) and path[2:] == ("value",) and value is None
    ),
    errors.NUMBER_RANGE: lambda _, value: _is_beyond(value),
    errors.VALUE_TOO_LARGE: _is_large,
    errors.RESERVED_KEY: lambda path, value: _is_written(path) and str(value).startswith("$"),
    errors.RESERVED_ID: lambda path, _: path == ("id",),
    errors.DEADLINE_TOO_FAR: lambda path, _: path == ("deadline_ms",),
}


def _repeated_update(record: Any) -> _Path | None:
    """Return the first update whose key another before it has."""
    seen = set[str]()
    for n, update in enumerate(record["updates"]):
        if update["key"] in seen:
            return ("updates", n, "key")
        seen.add(update["key"])
    return None


def _path_text(path: _Path) -> str:
    parts = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return "".join(parts).removeprefix(".")


def _value_text(record: Any, path: _Path) -> str | None:
    """Return the JSON of the field at a path, shortened; None if there is none."""
    value = record
    try:
        for step in path:
            value = value[step]
    except (KeyError, IndexError, TypeError):
        return None
    text = json.dumps(value)
    return text if len(text) <= _GIVEN_CHARS_MAX else text[:_GIVEN_CHARS_MAX] + "…"


_OWN_ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_EMPTY: Final = re.compile(rb"\{\}")


def time_of_id(txn_id: str) -> int | None:
    """Return the time (ms) that an id of ours, or any UUID of version 7, was made; else None."""
    if not _OWN_ID.fullmatch(txn_id):
        return None
    return int(txn_id[:8] + txn_id[9:13], 16)


def transaction_body(body: bytes, key: str | None) -> tuple[str, bytes]:
    """Return the id and the payload of the body of `POST /v1/transactions`. The id may be left out;
    then the header `Idempotency-Key` is the id, if it was sent. Raises ProblemError: invalid-json,
    invalid-transaction, invalid-parameter.
    """
    try:
        fields = msgspec.json.decode(body)
    except UNREADABLE:
        parse(b'{"id":"-",' + body.lstrip()[1:])  # the codec knows why not
        raise refuse_code(errors.INVALID_JSON) from None
    if not isinstance(fields, dict):
        raise refuse_code(errors.INVALID_TRANSACTION)
    compact = msgspec.json.format(body, indent=-1)
    if "id" in fields:
        if key is not None and fields["id"] != key:
            detail = "Idempotency-Key differs from the id in the body; send one of them."
            raise ProblemError("invalid-parameter", detail, parameters=["Idempotency-Key"])
        return fields["id"] if isinstance(fields["id"], str) else "", compact
    txn_id = new_id() if key is None else key
    named = b'{"id":' + msgspec.json.encode(txn_id)
    return txn_id, named + (b"}" if _EMPTY.fullmatch(compact) else b"," + compact[1:])


def with_timely_deadline(
    payload: bytes, txn: Transaction, deadline: int | None, default: int
) -> bytes:
    """Return a payload with a deadline: its own, the one that a header gives, or another. None is
    added where it would make the record too large: then its id is remembered for the window only.
    Raises ProblemError: invalid-parameter, if the header contradicts the payload.
    """
    if txn.deadline:
        if deadline not in {None, txn.deadline}:
            detail = "Deadline-Ms differs from the deadline in the body; send one of them."
            raise ProblemError("invalid-parameter", detail, parameters=["Deadline-Ms"])
        return payload
    dated = with_deadline(payload, default if deadline is None else deadline)
    return payload if len(dated) > TRANSACTION_BYTES_MAX and deadline is None else dated


def conditional_write(
    txn_id: str,
    key: str,
    value: bytes | None,
    checks: list[dict[str, Any]],
    ttl_ms: int | None = None,
) -> bytes:
    """Return the payload of a PUT of a canonical value, perhaps for a time, or of a DELETE."""
    update: dict[str, Any] = {"op": "delete", "key": key}
    if value is not None:
        update = {"op": "put", "key": key, "value": msgspec.Raw(value)}
        update |= {} if ttl_ms is None else {"ttl_ms": ttl_ms}
    return msgspec.json.encode({"id": txn_id, "checks": checks, "updates": [update]})


def parse(payload: bytes) -> Transaction:
    """Return the transaction in a payload. Raises ProblemError: it would be rejected."""
    decoded = decode(payload)
    if isinstance(decoded, Rejection):
        raise refuse_code(decoded.code, payload)
    if isinstance(decoded, Transaction) and decoded.id.startswith(FOLLOW_UP_PREFIX):
        raise refuse_code(errors.RESERVED_ID, payload)
    if isinstance(decoded, Marker):
        raise refuse_code(errors.INVALID_TRANSACTION)
    return decoded


def refuse_code(code: str, payload: bytes | None = None) -> ProblemError:
    """Return the problem of a transaction that would get the reason code, or got it. With its
    ``payload`` the problem names the field at fault, if there is one.
    """
    slug, detail = problem_of_rejection(code).slug, errors.REJECTED_CODES[code]
    fault = None if payload is None else culprit(code, payload)
    if fault is None:
        return ProblemError(slug, detail, code=code)
    if not fault.field:
        return ProblemError(slug, fault.wrong, code=code)
    problem = ProblemError(slug, f"{fault.field}: {fault.wrong}", code=code, field=fault.field)
    if fault.given is not None:
        problem.members["given"] = fault.given
    return problem


def authorise(txn: Transaction, client: Caller) -> None:
    """Refuse a transaction that names keys outside the client's scopes.

    Reads, asserts and comparisons need a read scope, as their outcome tells the value; updates
    need a write scope, `next_id` both. Checks of version and existence need either. So do checks
    and locks of a range, for a prefix that all its keys have, since their outcome tells how many
    keys there are; and index keys among the locks. A call reads and writes its keys, and
    reads its ranges; a deploy writes the key of its module, a constrain that of the constraints.
    Raises ProblemError: forbidden.
    """
    if client.may_everything:
        return
    for need, key in _needs(txn):
        if need is _Need.READ:
            client.must_read(key)
        elif need is _Need.WRITE:
            client.must_write(key)
        elif not client.may_write(key):
            client.must_read(key)


def may_hear(txn: Transaction, client: Caller) -> bool:
    """Return True if a client may know the verdict on a transaction that perhaps another sent.

    A verdict tells something of every key that the transaction names: for what is read a read scope
    is needed, for all else a read or a write scope. Index keys among the locks do not count: a
    facade adds them. A follow-up also has records of streams, which its verdict may tell.
    """
    if client.may_read(""):
        return True
    if txn.call is not UNSET and txn.call.batch is not UNSET:
        return False
    return all(
        client.may_read(key) or (need is not _Need.READ and client.may_write(key))
        for need, key in _needs(txn)
        if need is not _Need.INDEX
    )


class _Need(Enum):
    """The scope that the name of a key in a transaction needs.

    `INDEX` is that of an index key among the locks: as `EITHER`.
    """

    READ = auto()
    WRITE = auto()
    EITHER = auto()
    INDEX = auto()


def _needs(txn: Transaction) -> Iterator[tuple[_Need, str]]:
    """Yield all keys that a transaction names, and a prefix of each range, with what they need."""
    if txn.call is not UNSET:
        yield from ((_Need.READ, key) for key in _read_by(txn.call))
        yield from ((_Need.WRITE, key) for key in txn.call.keys)
    for key in (*txn.read_keys, *txn.asserts, *(read.shared for read in txn.read_ranges)):
        yield _Need.READ, key
    if txn.constrain is not UNSET:
        yield _Need.WRITE, CONSTRAINTS_KEY
    for update in txn.updates:
        yield _Need.WRITE, update.key
        if isinstance(update, NextId):
            yield _Need.READ, update.key
    for check in txn.checks:
        key = check.key if check.range is UNSET else check.range.shared
        yield (_Need.READ if _compares(check) else _Need.EITHER), key
    yield from ((_Need.EITHER, named.shared) for named in txn.lock_ranges)
    yield from ((_Need.INDEX, key) for key in txn.lock_keys)


def _read_by(call: Call) -> Iterator[str]:
    yield from call.keys
    yield from call.reads
    yield from (named.shared for named in call.ranges)


def _compares(check: Check) -> bool:
    operands = (check.eq, check.ne, check.lt, check.le, check.gt, check.ge)
    return any(operand is not UNSET for operand in operands)
