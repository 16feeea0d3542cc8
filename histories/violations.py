"""The findings of a checker, for people to read."""

from __future__ import annotations

from typing import Any

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

__all__ = ["Anomaly", "shown", "shown_request"]

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
            parts = [f"{key} += {_short(new)}" for key, new in request.appends.items()]
            return f"transaction {', '.join(parts) or 'read-only'} reads {_short(request.reads)}"
        case Get():
            return f"{request.consistency} get {request.key}"
        case ReadOperation():
            return f"{request.consistency} read {_short(request.keys)}"
        case ScanOperation():
            return f"{request.consistency} scan {request.prefix}*"


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
    read = ", ".join(f"{key} = {_short(seen.value)}" for key, seen in answer.seen.items())
    return f"{operation.outcome}{seq}{', saw ' if read else ''}{_cut(read)}"


def _short(value: Any) -> str:
    return _cut(msgspec.json.encode(value).decode())


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else f"{text[: _TEXT_MAX // 2]} … {text[-40:]}"
