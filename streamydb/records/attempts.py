"""The next attempt of a transaction that lacks locks: the same, with those that its verdict names.

Which index keys and ranges a transaction needs depends on the values that it meets, and on the
constraints. Its verdict says which (a range by its prefix),
and everything about the next attempt follows from that verdict, its id too. So whoever loses an
answer and begins again with the first attempt goes the same way, and the transaction is applied
once.
"""

from __future__ import annotations

import hashlib

import msgspec

from streamydb import errors
from streamydb.limits import ID_BYTES_MAX, LOCK_ATTEMPTS_MAX
from streamydb.records.names import UNIQUE_PREFIX
from streamydb.records.result import Result

_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def with_fields(payload: bytes, **fields: object) -> bytes:
    """Return the payload of a transaction with other values of some fields."""
    return msgspec.json.encode({**_decode(payload), **fields})


def following(txn_id: str, result: Result) -> str | None:
    """The id of the attempt after the one with this verdict; None if it is final.
    ``txn_id``: the id of the attempt. ``result``: its verdict.
    """
    return id_after(txn_id) if _missing(result) else None


def is_attempt(named: str, txn_id: str) -> bool:
    """Return True if an id is that of a transaction, or of an attempt that followed it."""
    for _ in range(LOCK_ATTEMPTS_MAX + 1):
        if named == txn_id:
            return True
        txn_id = id_after(txn_id)
    return False


def relocked(txn_id: str, payload: bytes, result: Result) -> tuple[str, bytes] | None:
    """The id and the bytes of the attempt after the one with this verdict; None if it is final.

    Args:
        txn_id: the id of the attempt.
        payload: its bytes, a valid transaction.
        result: its verdict.
    """
    missing = _missing(result)
    if not missing:
        return None
    if UNIQUE_PREFIX in missing:  # hidden from this client: the facade goes on by itself
        return txn_id, payload
    known = msgspec.json.decode(_decode(payload).get("locks", msgspec.Raw(b"[]")))
    keys = {
        lock
        for lock in (*known, *missing)
        if isinstance(lock, str) and lock.startswith(UNIQUE_PREFIX)
    }
    ranges = [lock for lock in known if not isinstance(lock, str)]
    ranges += [{"range": {"prefix": lock}} for lock in sorted(set(missing) - keys)]
    named = id_after(txn_id)
    return named, with_fields(payload, id=named, locks=[*sorted(keys), *ranges])


def _missing(result: Result) -> list[str]:
    """The locks that an attempt lacked, if that is why it aborted."""
    if result.code != errors.UNDECLARED_KEY:
        return []
    return [entry.key for entry in result.failed if entry.check == "lock"]


def id_after(txn_id: str) -> str:
    """The id of the attempt after one: `id`, `id~1`, …; a hash stands for one that is too long."""
    stem, mark, number = txn_id.rpartition("~")
    if mark and number.isascii() and number.isdigit() and len(number) < 4:
        return f"{stem}~{int(number) + 1}"
    if len(txn_id.encode()) + 5 > ID_BYTES_MAX:
        txn_id = hashlib.sha256(txn_id.encode()).hexdigest()
    return f"{txn_id}~1"
