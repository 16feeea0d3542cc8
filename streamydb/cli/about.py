"""`streamydb limits` and `version`: facts about the installed program."""

from __future__ import annotations

import importlib.metadata
import platform

import typer

from streamydb import __version__
from streamydb.cli.common import print_json, stdout
from streamydb.cli.options import Json

PACKAGES = (
    "pyspark", "pyarrow", "pandas", "numpy", "numba", "msgspec", "lmdb", "confluent-kafka",
    "protobuf", "grpcio", "grpcio-status", "googleapis-common-protos", "typer", "rich",
    "pydantic-settings", "psutil",
)  # fmt: skip
"""Packages whose versions are worth knowing when something is wrong."""


def limits(json: Json = False) -> None:
    """Print every limit: what a transaction, a key, a value may be at most."""
    from rich.table import Table

    from streamydb.limits import DESCRIPTIONS, LIMITS

    if json:
        print_json(LIMITS)
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("limit", no_wrap=True, min_width=max(map(len, LIMITS)))
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("of")
    for name, value in LIMITS.items():
        table.add_row(name, f"{value:,}" if abs(value) < 2**53 else str(value), DESCRIPTIONS[name])
    stdout().print(table)


def own_version() -> str:
    """The version of streamy-db; it says when that is not installed."""
    return f"{__version__}{'' if installed('streamydb') else ' (from the source)'}"


def say_version(is_wanted: bool) -> None:
    if is_wanted:
        stdout().print(f"streamydb {own_version()}", markup=False)
        raise typer.Exit


def version(json: Json = False) -> None:
    """Print the version of streamy-db, of Python and of the packages it stands on."""
    versions: dict[str, str | None] = {name: installed(name) for name in PACKAGES}
    own = own_version()
    if json:
        print_json({"streamydb": own, "python": platform.python_version(), "packages": versions})
        return
    out = stdout()
    out.print(f"streamydb {own}", markup=False)
    out.print(f"python {platform.python_version()}", markup=False)
    for name, number in versions.items():
        out.print(f"{name} {number or '(absent)'}", markup=False)


def installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
