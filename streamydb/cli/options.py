"""The options that commands share, each once with its text; some stand in groups.

A group is a NamedTuple of options. A command takes it as one parameter, and `grouped` shows its
fields to typer, which knows no groups.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, get_type_hints

import typer

MASTER: Final = "local[*]"  # where Spark runs if nobody says so
_SPAN_S_MAX: Final = 1_000_000_000


def time_span(value: float | None) -> float | None:
    """Refuse what is no time in seconds: Python reads `nan` and `inf` as numbers, too. Raises
    BadParameter: it is not from 0 to thirty years.
    """
    if value is None or 0 <= value <= _SPAN_S_MAX:
        return value
    raise typer.BadParameter(f"{value} is not a number of seconds from 0 to {_SPAN_S_MAX}")


def point(value: str | None) -> str | None:
    """Refuse what is neither a seq nor a time. Raises BadParameter: it is neither."""
    if value is None:
        return None
    from streamydb.errors import SnapshotError
    from streamydb.spark.snapshot import moment  # it imports Spark

    try:
        moment(value)
    except SnapshotError as error:
        raise typer.BadParameter(str(error)) from None
    return value


def point_option(default: str) -> Any:
    """Return the option of a state by its seq or its time; ``default``: which it is otherwise."""
    text = f"A seq, or a time (ISO 8601 with zone) (default: {default})."
    return typer.Option(help=text, callback=point)


def seconds_option(text: str, *names: str) -> Any:
    return typer.Option(*names, help=text, callback=time_span)


def backup_option(text: str) -> Any:
    return typer.Option("--backup", metavar="FOLDER", help=text)


Database = Annotated[
    str | None,
    typer.Option(
        "--database", "-d", help="The database's name (env: STREAMYDB_DATABASE; default: bank)."
    ),
]
Home = Annotated[
    Path | None,
    typer.Option(
        "--home",
        help="Folder of the embedded broker, checkpoints and logs "
        "(env: STREAMYDB_HOME; default: ~/.local/share/streamydb).",
    ),
]
Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        help="Kafka's address, host:port[,host:port] "
        "(env: STREAMYDB_BOOTSTRAP; default: where `up` put the database).",
    ),
]
Procedures = Annotated[
    Path | None,
    typer.Option(
        "--procedures",
        help="Folder with the modules of stored procedures "
        "(env: STREAMYDB_PROCEDURES; default: in the database's folder).",
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print JSON on standard output and nothing else there.")
]
Master = Annotated[
    str, typer.Option("--master", help="Where Spark runs: local[*], spark://host:7077, ...")
]
ResultTimeout = Annotated[float, seconds_option("Seconds to wait for a result.", "--timeout")]
ReadyTimeout = Annotated[
    float,
    seconds_option("Seconds that pipeline and facade may each take to be ready.", "--timeout"),
]


TrimmedBehind = Annotated[Path | None, backup_option("The backup that the log was trimmed behind.")]


class DatabaseOptions(NamedTuple):
    """The options that name a database."""

    database: Database = None
    home: Home = None
    bootstrap: Bootstrap = None


class FoundingOptions(NamedTuple):
    """The options that say how a new database is made."""

    shards: Annotated[
        int | None, typer.Option(help="Slices of the keys; resize changes them (default: 1).")
    ] = None
    partitions: Annotated[
        int | None, typer.Option(help="Partitions of the transactions topic (default: 1).")
    ] = None


class ReplicaOptions(NamedTuple):
    """The options of the copies of topics."""

    replication: Annotated[
        int | None, typer.Option(help="Copies of each topic (default: 3; 1 on few brokers).")
    ] = None
    min_insync: Annotated[
        int | None, typer.Option(help="Copies that must have a write (default: 2 of 3).")
    ] = None


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose groups are given as one option for each of their fields."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: it for name, it in hints.items() if hasattr(it, "_fields")}
    options: list[Parameter] = []
    for one in signature(command).parameters.values():
        kind = groups.get(one.name)
        options += [one.replace(annotation=hints[one.name])] if kind is None else _fields(kind)

    @wraps(command)
    def flat(**given: Any) -> None:
        for name, kind in groups.items():
            given[name] = kind(**{field: given.pop(field) for field in kind._fields})
        command(**given)

    keyword_only = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in options]
    flat.__signature__ = Signature(keyword_only)  # type: ignore[attr-defined]
    flat.__annotations__ = {each.name: each.annotation for each in keyword_only}
    return flat


def _fields(group: Any) -> list[Parameter]:
    return [
        Parameter(
            name, Parameter.KEYWORD_ONLY, default=group._field_defaults[name], annotation=hint
        )
        for name, hint in get_type_hints(group, include_extras=True).items()
    ]
