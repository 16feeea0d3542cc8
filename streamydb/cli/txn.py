"""`streamydb txn`: run one transaction from arguments, or many from a file or standard input."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamydb.cli.common import EXIT_NO, EXIT_USAGE, Failure, plain, print_raw, say, stderr
from streamydb.cli.options import DatabaseOptions, Json, ResultTimeout
from streamydb.cli.parts import PartError, TransactionOptions, transaction_of
from streamydb.cli.target import Target, find_target
from streamydb.limits import TRANSACTION_BYTES_MAX
from streamydb.records.formats import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from msgspec import Raw

    from streamydb.records import Result
    from streamydb.records.result import Failed

Strict = Annotated[
    bool, typer.Option("--strict/--no-strict", help="Exit code 3 if one does not commit, or 0.")
]


def txn(
    parts: TransactionOptions,
    options: DatabaseOptions,
    file: Annotated[
        Path | None,
        typer.Argument(help="JSON-lines file with a transaction a line; - is standard input."),
    ] = None,
    id_: Annotated[
        str | None, typer.Option("--id", help="The transaction's id; default: a new one.")
    ] = None,
    strict: Strict = True,
    timeout: ResultTimeout = 60.0,
    json: Json = False,
) -> None:
    """Run transactions and show their results: checks see the state before, reads that after.

    Updates are made in this order: put, add, max, min, append, next-id, delete, touch.
    """
    target = find_target(options)
    try:
        transaction = transaction_of(parts)
    except PartError as error:
        raise Failure(str(error), EXIT_USAGE) from None
    identified = transaction if id_ is None else {"id": id_, **transaction}
    committed = _run(target, file, identified, timeout, json=json)
    if strict and not committed:
        raise typer.Exit(EXIT_NO)


def _run(
    target: Target, file: Path | None, transaction: dict[str, Any], timeout_s: float, *, json: bool
) -> bool:
    from streamydb.cli.calls import call

    if file is not None:
        if transaction:
            raise Failure("give either a file or options, not both", EXIT_USAGE)
        return _many(target, file, timeout_s, json=json)
    if not transaction.keys() - {"id"}:
        raise Failure("nothing to do: give --put, --add, --read, --call ..., or a file", EXIT_USAGE)
    result = call(target, transaction, timeout_s)
    _show(result, json=json)
    return result.status == "committed"


def _many(target: Target, file: Path, timeout_s: float, *, json: bool) -> bool:
    """Run a transaction a line; return True if all committed.
    Raises Failure: a line is none; those before it were executed, and are shown.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from streamydb.cli.calls import call_many

    counts = {"committed": 0, "aborted": 0, "rejected": 0}
    lines = _Lines(file, timeout_s)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    console = stderr()
    display = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    with display as progress:
        bar = progress.add_task("transactions", total=0)

        def appended() -> None:
            progress.update(bar, total=(progress.tasks[0].total or 0) + 1)

        for result in call_many(target, lines.transactions(), timeout_s, appended):
            counts[result.status] += 1
            progress.advance(bar)
            if json or result.status != "committed":
                _show(result, json=json)
    say(", ".join(f"{count:,} {status}" for status, count in counts.items()))
    if lines.fault is not None:
        executed = sum(counts.values())
        stopped_after = (
            f"; the {executed:,} before it were executed, nothing else was appended"
            if executed
            else ""
        )
        raise Failure(f"{lines.fault}{stopped_after}", EXIT_USAGE)
    return counts["aborted"] == counts["rejected"] == 0


class _Lines:
    """The transactions of a file, a JSON object a line.

    Attributes:
        fault: what is wrong with the line at which they end, if they do not end with the file.
    """

    def __init__(self, file: Path, timeout_s: float) -> None:
        """Open the file. Raises Failure: it cannot be read."""
        self.fault: str | None = None
        self._file, self._timeout_s = file, timeout_s
        try:
            self._stream = sys.stdin.buffer if str(file) == "-" else file.open("rb")
        except OSError as error:
            raise Failure(f"{file} cannot be read: {error.strerror}", EXIT_USAGE) from None

    def transactions(self) -> Iterator[bytes]:
        with self._stream as stream:
            for number, line in enumerate(stream, 1):
                text = line.strip()
                if not text:
                    continue
                try:
                    yield self._transaction(text)
                except Failure as error:
                    self.fault = f"{self._file}, line {number}: {error}"
                    return

    def _transaction(self, text: bytes) -> bytes:
        """Return the record of a line. Raises Failure: it can be none."""
        import msgspec

        from streamydb.cli.calls import deadline_ms, with_id
        from streamydb.records import with_deadline

        try:
            fields = msgspec.json.decode(text)
        except UNREADABLE as error:
            raise Failure(f"not JSON ({error})") from None
        if not isinstance(fields, dict):
            raise Failure("not a JSON object")
        identified = text if "id" in fields else msgspec.json.encode(with_id(fields))
        dated = "deadline_ms" in fields
        payload = identified if dated else with_deadline(identified, deadline_ms(self._timeout_s))
        if len(payload) > TRANSACTION_BYTES_MAX:
            raise Failure(f"a transaction has at most {TRANSACTION_BYTES_MAX:,} bytes: split it")
        return payload


def _show(result: Result, *, json: bool) -> None:
    import msgspec

    from streamydb.cli.calls import meaning
    from streamydb.records import encode_result

    if json:
        print_raw(encode_result(result))
        return
    colour = {"committed": "green", "aborted": "yellow", "rejected": "red"}[result.status]
    head = typer.style(result.status, fg=colour, bold=True)
    code = f" {result.code}" if result.code else ""
    if result.reason is not msgspec.UNSET:
        code += f" ({result.reason})"
    id_text = "" if result.id is None else f"  id {plain(result.id)}"
    typer.echo(f"{head}{plain(code)}  seq {result.seq}{id_text}")
    if result.code and not result.failed and result.reason is msgspec.UNSET:
        typer.echo(f"  {meaning(result.code)}")
    if result.returned is not msgspec.UNSET:
        typer.echo(f"  returned {_value(result.returned)}")
    for key, value in result.reads.items():
        typer.echo(f"  {plain(key)} = {_value(value)}")
    for range_read in result.ranges or ():
        end = (
            ".." + (range_read.range.end or "") if range_read.range.prefix is msgspec.UNSET else ""
        )
        typer.echo(f"  {plain(range_read.range.begin + end)}: {len(range_read.entries)} keys")
        for entry in range_read.entries:
            text = _value(entry.value)
            typer.echo(f"    {plain(entry.key)} = {text}  (version {entry.version})")
    for failed in result.failed:
        met = f"value is {_value(failed.value)}"
        if failed.count is not msgspec.UNSET:
            met = f"{failed.count} keys"
        typer.echo(f"  {_named(failed)} on {plain(failed.key)}: {met}, version {failed.version}")
    if result.duplicate is not msgspec.UNSET:
        typer.echo(f"  the id was used before; this copy is seq {result.duplicate.seq}")


def _named(failed: Failed) -> str:
    """Name a check that failed by its number, a constraint by its rule."""
    import msgspec

    if failed.constraint is msgspec.UNSET:
        return f"{failed.check} {failed.index}"
    rule = "" if failed.violated is msgspec.UNSET else f" ({plain(failed.violated)})"
    return f"constraint {plain(failed.constraint)}{rule}"


def _value(value: Raw) -> str:
    return plain(bytes(value).decode())
