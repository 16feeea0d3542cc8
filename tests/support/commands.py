"""All commands of `streamydb`, those of its programs too, and how one is run in this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import typer
from typer.testing import CliRunner

from streamydb.cli import app
from streamydb.cli.mounted import entry_point

__all__ = ["command_names", "run"]

_PROGRAMS: Final = {
    "bench": "bench", "sim": "simulator", "demo": "bench.demo", "histories": "histories",
}  # fmt: skip


def command_names() -> set[str]:
    """Return the commands with their sub-commands, as a person types them."""
    own = set(_names(typer.main.get_command(app), ()))
    programs = own & _PROGRAMS.keys()
    assert programs == _PROGRAMS.keys()
    mounted = {
        name for program in programs
        for name in _names(typer.main.get_command(entry_point(_PROGRAMS[program])), (program,))
    }  # fmt: skip
    return own - programs | mounted


def _names(command: Any, words: tuple[str, ...]) -> Iterator[str]:
    found = getattr(command, "commands", None)
    if found is None:
        yield " ".join(words)
        return
    for name, each in found.items():
        yield from _names(each, (*words, name))


def run(*words: str) -> str:
    """Run a command; return its standard output. A difference that it found is no failure."""
    done = CliRunner().invoke(app, list(words))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code in (0, 3), done.stderr
    return done.stdout
