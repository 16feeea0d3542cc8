"""The changes that an event stream wants: by their keys, and by a check of their values."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from streamydb.facade.feed_ports import ChangeEvent
from streamydb.facade.problems import ProblemError
from streamydb.limits import KEY_BYTES_MAX
from streamydb.records import Transaction
from streamydb.records.condition import condition, condition_form
from streamydb.records.formats import UNREADABLE
from streamydb.txn_processor.comparisons import failed_checks

_NULL = b"null"


class _Values(msgspec.Struct):
    before: msgspec.Raw
    after: msgspec.Raw


_decode = msgspec.json.Decoder(_Values).decode


@dataclass(frozen=True, slots=True)
class Wanted:
    """The changes that one stream wants: of a range of keys (bounds in UTF-8), by checks of their
    values.

    ``after``: a check of the value that was written, and of its version; ``before``: of the value
    that was there; None: any.
    """

    prefix: str = ""
    start: bytes = b""
    end: bytes | None = None
    after: Transaction | None = None
    before: Transaction | None = None

    def takes(self, event: ChangeEvent) -> bool:
        """Return True if a change is wanted."""
        if not event.key.startswith(self.prefix):
            return False
        if self.start or self.end is not None:
            key = event.key.encode()
            if key < self.start or (self.end is not None and key >= self.end):
                return False
        if self.after is None and self.before is None:
            return True
        values = _decode(event.data)
        after = _value(values.after)
        seq = 0 if after is None else event.seq
        return _holds(self.after, after, seq) and _holds(self.before, _value(values.before), 0)


def wanted_of(
    prefix: str | None, start: str | None, end: str | None, where: str | None, was: str | None
) -> Wanted:
    """The wish that parameters express. Raises ProblemError: invalid-parameter."""
    for name, text in (("prefix", prefix), ("start", start), ("end", end)):
        if text is not None and len(text.encode()) > KEY_BYTES_MAX:
            detail = f"{name} has at most {KEY_BYTES_MAX} bytes of UTF-8."
            raise ProblemError("invalid-parameter", detail, parameters=[name])
    return Wanted(
        prefix or "", (start or "").encode(), None if end is None else end.encode(),
        _check("where", where), _check("where_before", was),
    )  # fmt: skip


def _check(name: str, text: str | None) -> Transaction | None:
    """Return a transaction with this check alone.

    A check of the value before takes no version, because a change does not tell that.
    """
    if text is None:
        return None
    versioned = name == "where"
    try:
        found = condition(msgspec.json.decode(text), versioned=versioned)
    except UNREADABLE:
        found = None
    if found is None:
        detail = condition_form(name, versioned=versioned)
        raise ProblemError("invalid-parameter", detail, parameters=[name])
    return found


def _value(raw: msgspec.Raw) -> bytes | None:
    value = bytes(raw)
    return None if value == _NULL else value


def _holds(check: Transaction | None, value: bytes | None, version: int) -> bool:
    return check is None or not failed_checks(check, lambda _: (value, version))
