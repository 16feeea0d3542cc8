"""The findings of a checker, for people to read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from histories.records import (
    AppendOperation,
    Get,
    Operation,
    ReadOperation,
    Request,
    ScanOperation,
    Seen,
    WriteOperation,
)

__all__ = ["NOBODY", "Anomaly", "shown", "shown_request"]

NOBODY: Final = -1
"""The client that removes keys when they end."""

_TEXT_MAX = 160


class Anomaly(msgspec.Struct, frozen=True):
    """Something that the contract excludes.

    Attributes:
        anomaly: its name in the literature where it has one: `G1a`, `lost-update`, ...
        message: what contradicts what, one line a step.
        operations: places in the history of those that take part.
    """

    anomaly: str
    message: str
    operations: tuple[int, ...] = ()


def shown(operation: Operation) -> str:
    """Return an operation in a line: who, when (ms), what, and the answer."""
    if operation.client == NOBODY and isinstance(operation.request, AppendOperation):
        return f"#{operation.index} the end of {', '.join(operation.request.removes)}"
    end = "?" if operation.returned_ns is None else f"{operation.returned_ns / 1e6:.3f}"
    began = operation.invoked_ns / 1e6
    answer = operation.outcome if operation.answer is None else _answer(operation)
    what = shown_request(operation.request)
    return f"#{operation.index} client {operation.client} [{began:.3f}, {end}] ms {what}: {answer}"


def shown_request(request: Request) -> str:
    """Return a request as a short text."""
    match request:
        case WriteOperation(value=None, expected=expected):
            return f"delete {request.key}{_condition(expected)}"
        case WriteOperation(expected=expected):
            return f"put {request.key} = {_short(request.value)}{_condition(expected)}"
        case AppendOperation():
            return f"transaction {_shown_parts(request)}"
        case Get():
            return f"{request.consistency} get {request.key}"
        case ReadOperation():
            return f"{request.consistency} read {_short(request.keys)}"
        case ScanOperation():
            return f"{request.consistency} scan {request.prefix}*"


def _shown_parts(request: AppendOperation) -> str:
    """Return what a transaction demands, does and reads."""
    demands = [f"{prefix}* as at seq {known.seq}, {_shown_values(known.seen)}"
               for prefix, known in request.unchanged.items()]  # fmt: skip
    demands += [f"at most {most} keys {prefix}*" for prefix, most in request.most.items()]
    parts = [f"{key} += {_short(new)}" for key, new in request.appends.items()]
    parts += [f"delete {key}" for key in request.removes]
    parts += [f"touch {key}" for key in request.touches]
    parts += [f"{key} ends after {ttl_ms} ms" for key, ttl_ms in request.ttls.items()]
    parts = [f"if {each}" for each in demands] + [", ".join(parts) or "read-only"]
    if request.reads or not request.scans:
        parts.append(f"reads {_short(request.reads)}")
    return " ".join([*parts, *(f"scans {prefix}*" for prefix in request.scans)])


def _shown_values(entries: Mapping[str, Seen]) -> str:
    """Return the keys and values of a range in a line."""
    shown_ones = (f"{key} = {_short(seen.value)}" for key, seen in entries.items())
    return _cut(", ".join(shown_ones) or "nothing")


def _condition(expected: Seen | None) -> str:
    if expected is None:
        return ""
    return " if absent" if expected.value is None else f" if it is {_short(expected.value)}"


def _answer(operation: Operation) -> str:
    answer = operation.answer
    if answer is None:
        return operation.outcome
    seq = "" if answer.seq is None else f" at seq {answer.seq}"
    if not answer.committed:
        return f"refused{seq}"
    read = [_shown_values(answer.seen)] if answer.seen else []
    read += [f"{prefix}*: {_shown_values(entries)}" for prefix, entries in answer.ranges.items()]
    return f"{operation.outcome}{seq}{', saw ' if read else ''}{'; '.join(read)}"


def _short(value: Any) -> str:
    return _cut(msgspec.json.encode(value).decode())


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else f"{text[: _TEXT_MAX // 2]} … {text[-40:]}"
