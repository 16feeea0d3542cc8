"""`streamydb procedures`: check modules of stored procedures, deploy them, list them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamydb.cli.common import EXIT_NO, EXIT_USAGE, Failure, print_json, say, stdout
from streamydb.cli.options import DatabaseOptions, Json, Procedures, ResultTimeout
from streamydb.cli.target import Target, find_target

if TYPE_CHECKING:
    from streamydb.procedures.modules import Module


class ProcedureAction(StrEnum):
    """An action on stored procedures."""

    CHECK = "check"
    DEPLOY = "deploy"
    LIST = "list"


def procedures(
    options: DatabaseOptions,
    action: Annotated[
        ProcedureAction,
        typer.Argument(
            help="check FILES; deploy FILES: put them into the folder, then into the log; list."
        ),
    ],
    files: Annotated[
        list[Path] | None, typer.Argument(help="Modules like bank.py.", show_default=False)
    ] = None,
    folder: Procedures = None,
    timeout: ResultTimeout = 60.0,
    json: Json = False,
) -> None:
    """Check, deploy and list modules of stored procedures.

    A deploy goes through the log: transactions after it run the new version, earlier ones and their
    replays the old one, so the folder keeps every version.
    """
    if action is ProcedureAction.LIST:
        if files:
            raise Failure("list takes no files", EXIT_USAGE)
        _list(find_target(options, procedures=folder), timeout, json=json)
        return
    if not files:
        raise Failure(f"name the files to {action.value}, like bank.py", EXIT_USAGE)
    modules, refused = _checked(files)
    if action is ProcedureAction.CHECK:
        _show_checked(modules, refused, json=json)
    if refused:
        raise typer.Exit(EXIT_NO)
    if action is ProcedureAction.CHECK:
        return
    target = find_target(options, procedures=folder)
    for file in files:
        _deploy(target, file, timeout, json=json)


def _checked(files: list[Path]) -> tuple[list[Module], dict[str, list[str]]]:
    """The modules in files, and of each file that is refused all reasons, which are shown. Raises
    Failure: a file cannot be read, or its name is no module's.
    """
    from streamydb.errors import ConfigurationError
    from streamydb.local.module_folder import load_file
    from streamydb.procedures.modules import ModuleRefused

    modules: list[Module] = []
    refused: dict[str, list[str]] = {}
    for file in files:
        try:
            modules.append(load_file(file)[0])
        except ModuleRefused as error:
            refused[str(file)] = [str(refusal) for refusal in error.refusals]
            say(str(error))
        except ConfigurationError as error:
            raise Failure(str(error), EXIT_USAGE) from None
    return modules, refused


def _show_checked(modules: list[Module], refused: dict[str, list[str]], *, json: bool) -> None:
    if json:
        faults = [{"file": file, "refused": reasons} for file, reasons in refused.items()]
        print_json([*(module.record for module in modules), *faults])
        return
    for module in modules:
        typer.echo(f"{module.name} {module.hash}")
        for name, args in module.procedures.items():
            typer.echo(f"  {module.name}.{name}({', '.join(args)})")


def _deploy(target: Target, file: Path, timeout_s: float, *, json: bool) -> None:
    """Put a file into the folder, then the record into the log, and wait for its result."""
    from streamydb.cli.calls import commit
    from streamydb.local.module_folder import publish

    module = publish(file, target.procedures)
    otherwise = f"{module.name} was not deployed"
    result = commit(target, {"deploy": module.record}, timeout_s, otherwise)
    if json:
        print_json({**module.record, "seq": result.seq})
    else:
        typer.echo(f"deployed {module.name} {module.hash} at seq {result.seq}")


def _list(target: Target, timeout_s: float, *, json: bool) -> None:
    """The versions in the folder, and which of them the log's end runs."""
    from streamydb.cli.calls import read
    from streamydb.local.module_folder import published
    from streamydb.procedures.core import version_of
    from streamydb.records import module_key

    versions = published(target.procedures)
    if not versions:
        if json:
            print_json([])
        say(f"no modules in {target.procedures}; deploy one: `streamydb procedures deploy bank.py`")
        return
    keys = sorted({module_key(version.module) for version in versions})
    values = read(target, keys, timeout_s)
    current = {key: version_of(v).hash for key, v in values.items() if v != b"null"}
    rows = [(v, current.get(module_key(v.module)) == v.hash) for v in versions]
    if json:
        print_json([{**v._asdict(), "path": str(v.path), "current": now} for v, now in rows])
        return
    for version, now in rows:
        mark = "[green]current[/green]" if now else "       "
        stdout().print(f"{mark} {version.module} {version.hash}", soft_wrap=True)
