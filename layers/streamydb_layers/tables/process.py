"""Execute statements for a facade: `python -m streamydb_layers.tables.process`.

A job is a transaction: the name of the tables, statements with parameters, and bounds. The process
asks for keys and ranges of one snapshot, and its outcome has the results and the writes: the facade
commits them if what was read still holds. It speaks frames on its standard input and output.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, Final

import msgspec

from streamydb.client import canonical, decode_value
from streamydb.sql import json_value
from streamydb.sql.child import READY, WithoutPandas, frame, hold, read_frame
from streamydb_layers.errors import InvalidNameError
from streamydb_layers.names import check_name
from streamydb_layers.tables.database import TablesView
from streamydb_layers.tables.errors import ConstraintViolationError, DataRefusedError, SqlError
from streamydb_layers.tables.keys import Keys
from streamydb_layers.tables.statements import Result
from streamydb_layers.tables.transaction import Overlay
from streamydb_layers.tables.workbench import Workbenches

_KIND: Final = {
    "ConstraintViolationError": "constraint", "StatementUnsupportedError": "unsupported",
    "DataRefusedError": "data",
}  # fmt: skip


class Job(msgspec.Struct):
    """A transaction; the bounds are those of `streamydb.sql.worker.Job`."""

    tables: str
    statements: list[tuple[str, list[Any] | dict[str, Any]]]
    memory_bytes: int
    cpu_s: int
    rows_max: int
    bytes_max: int


class _Asked:
    """The snapshot that the facade reads; see `Readable`."""

    def __init__(self, output: BinaryIO) -> None:
        self._output = output

    def read(self, keys: Sequence[str]) -> dict[str, Any]:
        """Return the values of keys; None for those that are absent."""
        found = self._ask("read", list(keys))
        return {k: None if v is None else decode_value(v) for k, v in zip(keys, found, strict=True)}

    def scan(self, start: str, end: str) -> Iterator[tuple[str, Any]]:
        """Yield a range in the order of keys."""
        return ((key, decode_value(value)) for key, value in self._ask("scan", start, end))

    def _ask(self, *question: Any) -> Any:
        self._output.write(frame(question))
        self._output.flush()
        return read_frame(sys.stdin.buffer)


def main() -> int:
    """Do jobs until there are no more."""
    with os.fdopen(os.dup(1), "wb") as output:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nothing else gets into the outcome
        benches = Workbenches()
        with benches.one() as bench:
            bench.ask("select 1")  # loads DuckDB
        output.write(READY)
        output.flush()
        first = True
        while True:
            try:
                job = msgspec.convert(read_frame(sys.stdin.buffer), Job)
            except EOFError:
                return 0
            _bound(job, first=first)
            first = False
            output.write(frame(["done", _outcome(job, _Asked(output), benches)]))
            output.flush()


def _outcome(job: Job, snapshot: _Asked, benches: Workbenches) -> dict[str, Any]:
    """Execute the statements; what there is to write, and to tell."""
    overlay = Overlay(snapshot)
    results: list[bytes] = []
    number = rows = size = 0
    try:
        view = TablesView(overlay, Keys(check_name(job.tables)), benches)
        for number, (sql, params) in enumerate(job.statements):  # noqa: B007 - told on a failure
            result = view.sql(sql, params)
            results.append(_encoded(result))
            rows, size = rows + len(result), size + len(results[-1])
            if rows > job.rows_max or size > job.bytes_max:
                return {"kind": "large"}
    except InvalidNameError as error:
        return {"kind": "name", "error": str(error)}
    except SqlError as error:
        return _failed(error, number)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        why = f"The result has a value that JSON does not have ({error}): cast it to text."
        return _failed(DataRefusedError(why), number)
    writes = {
        key: None if value is None else canonical(value) for key, value in overlay.writes.items()
    }
    return {"kind": "done", "results": b"[" + b",".join(results) + b"]", "writes": writes}


def _failed(error: SqlError, number: int) -> dict[str, Any]:
    kind = _KIND.get(type(error).__name__, "invalid")
    told: dict[str, Any] = {"kind": kind, "error": str(error), "statement": number}
    if error.place is not None:
        told |= {"line": error.place.line, "column": error.place.column}
    if isinstance(error, ConstraintViolationError):
        told |= {"of": error.kind, "constraint": error.constraint, "table": error.table}
    return told


def _encoded(result: Result) -> bytes:
    """A result as JSON; values of type JSON are decoded already."""
    kinds = zip(result.columns, result.types, strict=True)
    columns = [{"name": name, "type": kind} for name, kind in kinds]
    rows = [
        [
            cell if kind == "JSON" else json_value(cell, None)
            for cell, kind in zip(row, result.types, strict=True)
        ]
        for row in result.rows
    ]
    return msgspec.json.encode({"columns": columns, "rows": rows, "changed": result.changed})


def _bound(job: Job, *, first: bool) -> None:
    """Hold this process to memory and no new files, and to so much more processor time."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = int(used.ru_utime + used.ru_stime) + 1 + job.cpu_s
    hold(job.memory_bytes if first else None, cpu_s, for_good=False)


if __name__ == "__main__":
    sys.meta_path.insert(0, WithoutPandas())

    # Nothing is worth tidying up, and DuckDB's module complains when the interpreter does.
    os._exit(main())
