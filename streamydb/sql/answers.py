"""Results as JSON and as Python values, within bounds."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import math
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from streamydb.errors import StreamyError
from streamydb.records.formats import UNREADABLE

if TYPE_CHECKING:
    import duckdb

_CHUNK_ROWS = 256


class AnswerTooLargeError(Exception):
    """A result has more rows or bytes than an answer may."""


class UnheldValueError(StreamyError):
    """A result has a value that no value of Python is."""

    def __init__(self, fault: Exception) -> None:
        super().__init__(
            f"The result has a value that Python does not have ({fault}): cast it to text."
        )


def fetched(done: duckdb.DuckDBPyConnection, rows_max: int | None = None) -> list[tuple[Any, ...]]:
    """Return the next rows of a result, or all. Raises UnheldValueError."""
    try:
        return done.fetchall() if rows_max is None else done.fetchmany(rows_max)
    except RecursionError:
        raise
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as fault:
        raise UnheldValueError(fault) from None


def answer(done: duckdb.DuckDBPyConnection, seq: int, *, rows_max: int, bytes_max: int) -> bytes:
    """The JSON of a result, read a few rows at a time.
    Raises AnswerTooLargeError: it has more than ``rows_max`` rows or ``bytes_max`` bytes;
    UnheldValueError: it has a value that no value of Python is.
    """
    description = done.description or []
    types = [column[1] for column in description]
    columns = [{"name": column[0], "type": str(column[1])} for column in description]
    head = msgspec.json.encode({"seq": seq, "columns": columns})
    lines: list[bytes] = []
    size = len(head)
    while chunk := fetched(done, _CHUNK_ROWS):
        for row in chunk:
            cells = [json_value(cell, kind) for cell, kind in zip(row, types, strict=True)]
            line = msgspec.json.encode(cells)
            size += len(line) + 1
            lines.append(line)
            if len(lines) > rows_max or size > bytes_max:
                raise AnswerTooLargeError
    return head[:-1] + b',"rows":[' + b",".join(lines) + b"]}"


def json_value(value: Any, kind: Any) -> Any:
    """A value of a result, as DuckDB hands it over, as something that has a JSON form.

    JSON stays itself (text where it is none, as DuckDB's NaN). Numbers that are not finite, times,
    UUIDs and intervals are text, bytes are Base64.
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return _json(value) if str(kind) == "JSON" else value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, decimal.Decimal):
        return Raw(format(value, "f").encode()) if value.is_finite() else str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(bytes(value)).decode()
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, list | tuple):
        inner = _children(kind)
        of = inner[0] if inner else None
        return [json_value(element, of) for element in value]
    if isinstance(value, dict):
        return _json_object(value, kind)
    return str(value)


def python_value(value: Any, kind: Any) -> Any:
    """A value of a result with JSON decoded; everything else as DuckDB hands it over."""
    if isinstance(value, str) and str(kind) == "JSON":
        decoded = _json(value)
        return msgspec.json.decode(decoded) if isinstance(decoded, Raw) else decoded
    return value


def _json(text: str) -> Raw | str:
    """DuckDB's JSON as it is, or as text where it is none (NaN) or beyond any reader (1e999)."""
    data = text.encode()
    try:
        msgspec.json.decode(data)
    except UNREADABLE:
        return text
    return Raw(data)


def _json_object(value: dict[Any, Any], kind: Any) -> dict[str, Any]:
    """A struct, whose fields have types of their own, or a map, whose keys become text."""
    inner = _children(kind)
    if kind is not None and getattr(kind, "id", "") == "struct":
        by_name = dict(zip(value, inner, strict=False)) if len(inner) == len(value) else {}
        return {name: json_value(field, by_name.get(name)) for name, field in value.items()}
    of = inner[1] if len(inner) == 2 else None
    return {_text(name): json_value(element, of) for name, element in value.items()}


def _children(kind: Any) -> list[Any]:
    if kind is None or getattr(kind, "id", "") not in {"list", "array", "struct", "map"}:
        return []
    return [child for _, child in kind.children if not isinstance(child, int)]


def _text(name: Any) -> str:
    shown = json_value(name, None)
    return shown if isinstance(shown, str) else msgspec.json.encode(shown).decode()
