"""`streamydb acls`: what each role must be allowed in Kafka, as commands or applied."""

from __future__ import annotations

from typing import Annotated

import typer

from streamydb.cli.common import EXIT_USAGE, fail, say
from streamydb.cli.options import DatabaseOptions
from streamydb.cli.target import find_target

_EXAMPLE = "User:bank-facade"


def acls(
    role: Annotated[str, typer.Option(help="pipeline, facade, read-model, ...")],
    principal: Annotated[str, typer.Option(help=f"Whom to grant it: {_EXAMPLE}")],
    options: DatabaseOptions,
    apply: Annotated[
        bool, typer.Option("--apply", help="Grant it now, as the user of the settings.")
    ] = False,
) -> None:
    from streamydb.kafka import roles

    if role not in roles.ROLES:
        fail(f"there is no role {role!r}; there are {', '.join(roles.ROLES)}", EXIT_USAGE)
    if not principal.startswith("User:"):
        fail(f"{principal!r} is no principal: write {_EXAMPLE}", EXIT_USAGE)
    target = find_target(options)
    if apply:
        target.must_listen()
        count = roles.apply(target.connection, target.database, role, principal)
        say(f"{principal} may do what {role} of {target.database} does: {count} operations")
        return
    for line in roles.commands(target.bootstrap, target.database, role, principal):
        typer.echo(line)
