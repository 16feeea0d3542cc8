"""The command line `streamydb`: one file for each group of commands,
imported as they are needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from streamydb.errors import install

try:
    import typer
except ModuleNotFoundError:
    _NEEDS = f"the command line needs the server's packages: {install('server')}"
    raise SystemExit(_NEEDS) from None

from streamydb.cli.about import limits, say_version, version
from streamydb.cli.acls import acls
from streamydb.cli.backup import backup, trim
from streamydb.cli.broker import broker
from streamydb.cli.check import check
from streamydb.cli.common import Commands
from streamydb.cli.constraints import constraints
from streamydb.cli.create import create
from streamydb.cli.doctor import doctor
from streamydb.cli.down import down
from streamydb.cli.explain import explain
from streamydb.cli.fork import fork
from streamydb.cli.handover import handover
from streamydb.cli.mounted import PASSED_ON, bench, demo, histories, sim
from streamydb.cli.options import grouped
from streamydb.cli.procedures import procedures
from streamydb.cli.rebuild import rebuild
from streamydb.cli.restore import resize, restore
from streamydb.cli.serve import read_model, serve
from streamydb.cli.services import connect, pipeline, sequencer
from streamydb.cli.snapshot import snapshot
from streamydb.cli.sql import sql
from streamydb.cli.status import status
from streamydb.cli.txn import txn
from streamydb.cli.up import up
from streamydb.cli.watch import watch
from streamydb.cli.whatif import whatif

__all__ = ["app"]

app = typer.Typer(
    name="streamydb",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="A strictly serializable, deterministic key-value database made of streaming jobs.",
)


@app.callback()
def _main(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=say_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Take what stands before a command's name."""


_COMMANDS: tuple[Callable[..., None], ...] = (
    up, down, status, create, broker, pipeline, handover, sequencer, serve, read_model, connect,
    txn, sql, procedures, constraints, watch, doctor, check, whatif, explain, snapshot, backup,
    restore, fork, rebuild, resize, trim, limits, version, acls,
)  # fmt: skip
for _command in _COMMANDS:
    app.command()(grouped(_command))
for _program in (bench, sim, demo, histories):
    app.command(context_settings=PASSED_ON)(_program)
