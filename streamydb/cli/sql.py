"""`streamydb sql`: SQL on tables, from arguments, standard input, or at a prompt."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from streamydb.cli.common import EXIT_USAGE, NO_UTF8, fail, plain, print_json, say_error, stdout
from streamydb.cli.options import DatabaseOptions, Json
from streamydb.cli.target import facade_of, find_target
from streamydb.local.signals import Terminated

if TYPE_CHECKING:
    from streamydb.sql.tables import Connection, Relation, Result


def sql(
    options: DatabaseOptions,
    statements: Annotated[
        str | None, typer.Argument(help="Statements; default: standard input, or a prompt.")
    ] = None,
    tables: Annotated[
        str, typer.Option(help="The name of the tables, a part of their keys.")
    ] = "main",
    url: Annotated[
        str | None, typer.Option(help="The facade (default: the one that `up` started).")
    ] = None,
    token: Annotated[str | None, typer.Option(help="For the facade.")] = None,
    json: Json = False,
) -> None:
    """Execute SQL on tables, one transaction a statement; BEGIN and COMMIT make one of several."""
    from streamydb.sql.tables import TablesMissingError, connect, require

    try:
        require()
    except TablesMissingError as error:
        fail(str(error), EXIT_USAGE)
    connection = connect(facade_of(find_target(options), url), tables, token)
    try:
        if statements is None and sys.stdin.isatty():
            from streamydb.errors import StreamyError

            for text in Prompt(connection).lines():
                try:
                    _execute(connection, text, json=json)
                except StreamyError as error:
                    say_error(str(error))
                except UnicodeEncodeError:
                    say_error(NO_UTF8)
        else:
            _execute(connection, _given() if statements is None else statements, json=json)
        if connection.in_transaction:
            fail("the last transaction has no COMMIT: nothing of it was written")
    finally:
        connection.close()


def _given() -> str:
    """Standard input. Raises Failure: it is no text."""
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        fail(f"standard input is no {error.encoding}: {error.reason}", EXIT_USAGE)


def _execute(connection: Connection, text: str, *, json: bool) -> None:
    """Execute statements one by one.
    Raises UnicodeEncodeError: the text is no UTF-8; DuckDB has no words for that.
    """
    from streamydb.sql.tables import execute

    text.encode()
    for result in execute(connection, text):
        show(result, json=json)


def show(result: Result, *, json: bool) -> None:
    from rich.table import Table

    if json:
        print_json({"columns": result.columns, "rows": result.rows, "changed": result.changed})
        return
    if result.columns:
        table = Table()
        for name in result.columns:
            table.add_column(plain(name), overflow="fold")
        for row in result.rows:
            table.add_row(*("" if cell is None else _cell(cell) for cell in row))
        stdout().print(table, markup=False)
    if result.changed is not None:
        typer.echo("1 row" if result.changed == 1 else f"{result.changed} rows")
    elif not result.columns:
        typer.echo("done")


def _cell(value: object) -> str:
    """A value as it is shown; its lines stay lines."""
    return "\n".join(map(plain, str(value).split("\n")))


HISTORY: Final = ".streamydb_sql_history"
_WORDS: Final = (
    "and as begin between by check commit conflict create cascade default delete desc distinct do "
    "drop exists foreign from group having identity in index insert into is join key left limit "
    "not nothing null on or order primary references returning rollback select set table unique "
    "update using values view where with"
).split()
_HELP: Final = "End statements with a semicolon. \\d: tables, views; \\d NAME: columns; \\q: end."


class Prompt:
    """Reads statements from a terminal, over several lines, with history and completion.

    It uses Python's readline. The history lies in the home folder of the user.

    Args:
        connection: its tables and views complete names, and are described.
        ask: shows a prompt and returns a line; `EOFError` at the end.
    """

    def __init__(self, connection: Connection, ask: Callable[[str], str] = input) -> None:
        self._connection = connection
        self._ask = ask

    def lines(self) -> Iterator[str]:
        """Yield texts of whole statements; obey the commands between them."""
        if self._ask is input:
            with suppress(ImportError, OSError):
                import readline

                matches: list[str] = []

                def complete(word: str, number: int) -> str | None:
                    if number == 0:
                        matches[:] = self.complete(word)
                    return matches[number] if number < len(matches) else None

                readline.set_completer(complete)
                readline.set_completer_delims(" \t\n,();=<>.")
                readline.parse_and_bind("tab: complete")
                readline.read_history_file(Path.home() / HISTORY)
        try:
            from streamydb.sql.tables import typed_lines

            typed = typed_lines()
            while True:
                try:
                    line = self._ask("...> " if typed.lines else "sql> ")
                except Terminated:
                    raise
                except KeyboardInterrupt:
                    typed = typed_lines()
                    typer.echo()
                    continue
                except EOFError:
                    break
                if not typed.lines and line.strip().startswith("\\"):
                    if line.strip() == "\\q":
                        break
                    self._command(line.strip())
                    continue
                if (typed.lines or line.strip()) and typed.take(line):
                    yield "\n".join(typed.lines)
                    typed = typed_lines()
        finally:  # by Ctrl-C in a statement, too
            self._end()

    def complete(self, word: str) -> list[str]:
        """The words that begin with this one: of SQL, tables, views, and their columns."""
        names = [name for table in self._relations() for name in (table.name, *_columns(table))]
        return sorted({each for each in [*_WORDS, *names] if each.lower().startswith(word.lower())})

    def _command(self, line: str) -> None:
        from streamydb.sql.tables import describe

        word, _, name = line.partition(" ")
        if word != "\\d":
            typer.echo(_HELP)
            return
        relations = self._relations()
        if not name:
            for table in relations:
                typer.echo(f"{table.name} ({', '.join(_columns(table))})")
            return
        relation = name.strip().rstrip(";").strip('"').lower()
        tables = [table for table in relations if table.name.lower() == relation]
        for table in tables:
            typer.echo("\n".join(describe(table)))
        if not tables:
            typer.echo(f"There is no table or view {name.strip()}.")

    def _relations(self) -> list[Relation]:
        return self._connection.definitions()

    def _end(self) -> None:
        if self._ask is not input:
            return
        with suppress(ImportError, OSError):
            import readline

            readline.set_history_length(1_000)
            readline.write_history_file(Path.home() / HISTORY)


def _columns(table: Relation) -> list[str]:
    return [column.name for column in table.columns]
