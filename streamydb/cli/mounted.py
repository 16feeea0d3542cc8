"""`streamydb bench`, `sim`, `demo` and `histories`: programs of their own, imported when called.

Their arguments are handed over untouched, `--help` included, so that the command line starts fast.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any, Final

import typer

from streamydb.cli.common import fail

CHECKOUT: Final = Path(__file__).resolve().parents[2]
"""Where the package lies: in a checkout, the programs lie there, too."""

PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""Context settings of a command that takes all its arguments as they are."""


def bench(context: typer.Context) -> None:
    """Measure throughput, latency, recovery and more. (`streamydb bench --help`)"""
    run(_of_the_checkout("bench"), "bench", context.args)


def sim(context: typer.Context) -> None:
    """Attack the pure classes with a seeded simulator. (`streamydb sim --help`)"""
    run(_of_the_checkout("simulator"), "sim", context.args)


def demo(context: typer.Context) -> None:
    """Load a bank and move money through real Kafka and Spark. (`streamydb demo --help`)"""
    run(_of_the_checkout("bench.demo"), "demo", context.args)


def histories(context: typer.Context) -> None:
    """Record and judge what clients see. (`streamydb histories --help`)"""
    run(_of_the_checkout("histories"), "histories", context.args)


def run(module: str, name: str, arguments: list[str]) -> None:
    """Call the program's typer `app`, else its `main(arguments) -> exit code`. Raises Failure: the
    module is not there or has no entry point.
    """
    entry = entry_point(module)
    if isinstance(entry, typer.Typer):
        command = typer.main.get_command(entry)
        code = command.main(arguments, prog_name=f"streamydb {name}", standalone_mode=False)
    else:
        code = entry(arguments)
    if isinstance(code, int) and code != 0:
        raise typer.Exit(code)


def entry_point(module: str) -> Any:  # noqa: RET503 - `fail` does not return
    """The `app` or `main` of a module or of its `cli` or `main` submodule."""
    for module_name in (module, f"{module}.cli", f"{module}.main"):
        try:
            loaded = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is None or not module_name.startswith(error.name):
                fail(f"{module} needs the package {error.name}: `pip install {error.name}`")
            continue
        for attribute in ("app", "main"):
            entry = getattr(loaded, attribute, None)
            if isinstance(entry, typer.Typer) or callable(entry):
                return entry
    fail(f"this installation has no {module}; reinstall streamy-db with all its packages")


def _of_the_checkout(module: str) -> str:
    """A program that a checkout has beside the package, and a wheel has not. Raises Failure: this
    is an installed wheel.
    """
    root = str(CHECKOUT)
    if not (CHECKOUT / "bench" / "__init__.py").is_file():
        fail(
            f"{module} runs in a checkout of streamy-db, and is no part of the installed "
            "package: get the repository, and call this there after `make venv`"
        )
    if root not in sys.path:
        sys.path.insert(0, root)
    started = os.environ.get("PYTHONPATH")  # of the processes that it starts
    os.environ["PYTHONPATH"] = root if not started else f"{root}{os.pathsep}{started}"
    return module
