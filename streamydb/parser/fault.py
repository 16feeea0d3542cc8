"""Records that end in the dead letters: refused ones, and those on which our own code raised.

A fault of ours gets its transaction an abort, once that was ruled (see `rulings`). It is named by
a hash, so that the same fault has the same name, and nothing of the transaction gets into the log
of the process.
"""

from __future__ import annotations

import hashlib
import logging
import traceback

from streamydb import errors
from streamydb.limits import DEAD_LETTER_PAYLOAD_BYTES_MAX

log = logging.getLogger(__name__)

_NULL, _REFUSED, _FAULT = b"\0", b"\1", b"\2"


def fingerprint(error: BaseException) -> str:
    """The type of ``error``, and 16 hexadecimal digits for where it was raised.

    The digits are of SHA-256 over file name, function and line of each frame; no values.
    """
    frames = traceback.extract_tb(error.__traceback__)
    where = [f"{frame.filename.rpartition('/')[2]}:{frame.name}:{frame.lineno}" for frame in frames]
    digest = hashlib.sha256("\n".join(where).encode()).hexdigest()
    return f"{type(error).__name__} {digest[:16]}"


def reported(error: BaseException, what: str) -> str:
    """Log an error that our code raised on ``what``, and return its fingerprint.

    The traceback is left out: it would show values.
    """
    name = fingerprint(error)
    log.error("a fault of ours on %s: %s", what.rstrip(","), name)
    return name


def keep(raw: bytes | None, fault: str | None = None) -> bytes:
    """Encode the part of a refused record that its dead letter shows, and the fault's name."""
    if raw is None:
        return _NULL
    head = raw[: DEAD_LETTER_PAYLOAD_BYTES_MAX + 1]
    return _REFUSED + head if fault is None else _FAULT + fault.encode() + b"\n" + head


def opened(kept: bytes) -> tuple[bytes | None, str | None]:
    """The record's value (None: a tombstone) and the fault's name (None: not our fault)."""
    if kept[:1] == _NULL:
        return None, None
    if kept[:1] == _REFUSED:
        return kept[1:], None
    fault, _, raw = kept[1:].partition(b"\n")
    return raw, fault.decode()


def status_of(code: str) -> str:
    """The status of a result that was never executed."""
    return "aborted" if code == errors.INTERNAL else "rejected"
