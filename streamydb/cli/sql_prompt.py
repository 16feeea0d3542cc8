"""The prompt of `streamydb sql`: statements over several lines, history, completion.

It uses Python's readline. The history lies in the home folder of the user.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from streamydb.local.signals import Terminated

if TYPE_CHECKING:
    from streamydb.sql.tables import Connection, Relation

HISTORY: Final = ".streamydb_sql_history"
_WORDS: Final = (
    "and as begin between by check commit conflict create cascade default delete desc distinct do "
    "drop exists foreign from group having identity in index insert into is join key left limit "
    "not nothing null on or order primary references returning rollback select set table unique "
    "update using values view where with"
).split()
_HELP: Final = "End statements with a semicolon. \\d: tables, views; \\d NAME: columns; \\q: end."


class Prompt:
    """Reads statements from a terminal.

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
