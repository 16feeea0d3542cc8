"""`streamydb sql`: SQL on tables, from arguments, standard input, or at a prompt."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from streamydb.cli.common import EXIT_USAGE, NO_UTF8, fail, plain, print_json, say_error, stdout
from streamydb.cli.options import DatabaseOptions, Json
from streamydb.cli.target import facade_of, find_target

if TYPE_CHECKING:
    from streamydb.sql.tables import Connection, Result


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
            from streamydb.cli.sql_prompt import Prompt
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
