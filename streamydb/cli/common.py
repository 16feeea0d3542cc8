"""The shared parts of all commands: settings, messages and JSON, failures.

Exit codes: 0 done; 1 the command could not do its work (a message on standard error says why);
2 the arguments make no sense; 3 the work was done and the answer is no (`check` found a difference,
`doctor` a fault, `txn` a transaction that did not commit, `status` nothing that runs).
"""

from __future__ import annotations

import codecs
import json
import locale
import os
import re
import sys
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from typer.core import TyperGroup

from streamydb.errors import StreamyError
from streamydb.local.disk import said_of
from streamydb.local.signals import unwinding

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from streamydb.settings import Settings

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_NO = 3

_SURROGATES = "surrogates not allowed"
"""Why Python encodes no text that holds bytes, of the command line, say, which are no UTF-8."""

NO_UTF8 = "what was given is no UTF-8, so it can be no key, id, value or statement"

_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_STRICT = {"strict", "surrogateescape"}

_PIPE_COLUMNS = 100_000
"""Width of a table that goes into a file or a pipe: nothing in it is broken or cut."""

_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}


class Failure(RuntimeError):  # noqa: N818 - what the user meets is not an exception
    """A command cannot go on; the message says what happened, where, and what to do next."""

    def __init__(self, message: str, code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.code = code


class Commands(TyperGroup):
    """The command group: turns the package's own errors into messages and exit codes."""

    def main(self, *arguments: Any, **named: Any) -> Any:
        """Run the program; what a terminal or a file cannot show does not end it, and what SIGTERM
        ends leaves nothing half made.
        """
        # Give a program that was started without standard streams (`>&-`) empty ones. Otherwise
        # Kafka's client would get their numbers for its connections, and write errors there.
        for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
            if getattr(sys, name) is None:
                setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123
        show_what_can_be()
        let_java_read_every_name()
        with unwinding():
            return super().main(*arguments, **named)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; errors of this package and of Kafka end as one message, no traceback."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            code = _code(error)
            if code is None:
                raise
            # The message; for a file, a folder or a disk with its name.
            say_error(
                NO_UTF8
                if isinstance(error, UnicodeEncodeError)
                else (isinstance(error, OSError) and said_of(error)) or str(error)
            )
            raise typer.Exit(code) from error


def _code(error: Exception) -> int | None:
    """The exit code of an error meant for the user; None for a bug, which keeps its traceback."""
    if isinstance(error, Failure):
        return error.code
    if isinstance(error, UnicodeEncodeError) and error.reason == _SURROGATES:
        return EXIT_USAGE
    if isinstance(error, OSError) and said_of(error) is not None:
        return EXIT_FAILED
    module = type(error).__module__.partition(".")[0]
    if isinstance(error, typer.Exit) or "Exit" in type(error).__name__:
        return None
    ours = isinstance(error, StreamyError) or module in {"streamydb", "confluent_kafka", "cimpl"}
    return EXIT_FAILED if ours else None


def show_what_can_be() -> None:
    """Have characters that an encoding lacks (Latin-1, ASCII) be shown by their numbers."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and stream.errors in _STRICT and not is_utf8(stream):
            stream.reconfigure(errors="backslashreplace")


def let_java_read_every_name() -> None:
    """Have processes that are started take names of files for UTF-8 where LC_ALL says ASCII. Python
    does so by itself unless LC_ALL is set, and Java cannot begin in a folder that it cannot name.
    """
    if os.environ.get("LC_ALL") and locale.setlocale(locale.LC_CTYPE) == "C":
        os.environ["LC_ALL"] = "C.UTF-8"


def is_utf8(stream: Any) -> bool:
    """Return True if a stream takes every character; one without an encoding is no file."""
    try:
        return codecs.lookup(stream.encoding or "utf-8").name.startswith("utf")
    except (AttributeError, LookupError):
        return True


def tick(console: Console, *, good: bool) -> str:
    """Return the mark of what went well or not, as markup that the console can show."""
    marks = ("+", "x") if console.options.ascii_only else ("✓", "✗")
    return f"[green]{marks[0]}[/green]" if good else f"[red]{marks[1]}[/red]"


def say_error(message: str) -> None:
    typer.secho("error: ", fg="red", bold=True, err=True, nl=False)
    typer.echo(message, err=True)


def say(message: str = "") -> None:
    typer.echo(message, err=True)


def stderr() -> Console:
    from rich.console import Console

    return Console(stderr=True, highlight=False, emoji=False)


def stdout() -> Console:
    from rich.console import Console

    width = None if sys.stdout.isatty() else _PIPE_COLUMNS
    return Console(highlight=False, emoji=False, width=width)


def plain(text: str) -> str:
    """A key, id or value on one line, without characters that would command a terminal."""
    return text.translate(_CONTROLS)


def print_json(value: object) -> None:
    import msgspec

    print_raw(msgspec.json.encode(value))


def print_raw(line: bytes) -> None:
    """Print a line of bytes that is JSON already, at once; it is JSON in every encoding."""
    text = line.decode("utf-8", "backslashreplace")
    if not is_utf8(sys.stdout):
        text = _NOT_ASCII.sub(lambda match: json.dumps(match[0])[1:-1], text)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def read_settings(**given: object) -> Settings:
    """The settings from the options that were given (not None), then the environment.
    Raises Failure: a value makes no sense; the message names the option and the rule.
    """
    from pydantic import ValidationError

    from streamydb.settings import Settings

    try:
        known = {name: value for name, value in given.items() if value is not None}
        return Settings(**known)  # type: ignore[arg-type]
    except ValidationError as error:
        raise Failure(settings_message(error, given), EXIT_USAGE) from None


def settings_message(error: Any, given: dict[str, object], prefix: str = "STREAMYDB_") -> str:
    """Say what is wrong with the settings, one line a problem, and show no value of them.
    ``prefix``: of the variables.
    """
    lines = []
    for problem in error.errors():
        name = str(problem["loc"][0]) if problem["loc"] else ""
        text = str(problem["msg"]).removeprefix("Value error, ")
        if not name:
            lines.append(text)
        elif given.get(name) is not None:
            lines.append(f"--{name.replace('_', '-')}: {text}")
        else:
            lines.append(f"{prefix}{name.upper()}: {text}")
    return "\n".join(lines)


def fail(message: str, code: int = EXIT_FAILED) -> NoReturn:
    raise Failure(message, code)


def read_file(file: Path) -> bytes:
    """The content of a file that an argument names. Raises Failure: it cannot be read."""
    try:
        return file.read_bytes()
    except OSError as error:
        fail(f"{file} cannot be read: {error.strerror}", EXIT_USAGE)
