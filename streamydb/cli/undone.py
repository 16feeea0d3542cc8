"""Ctrl-C while a command starts processes: end what this call has started, and only that."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import typer

from streamydb.cli.common import say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamydb.cli.phases import Phases
    from streamydb.cli.target import Target

EXIT_INTERRUPTED: Final = 130  # as a shell has it for a program that SIGINT ended


@contextmanager
def undone_if_interrupted(target: Target, phases: Phases) -> Iterator[None]:
    """Run a block; if it is interrupted, stop the processes that did not run before it. A second
    Ctrl-C leaves the rest running, and says how to stop it. Raises Exit: it was interrupted.
    """
    before = _running(target)
    try:
        yield
    except KeyboardInterrupt:
        started = [role for role in _running(target) if role not in before]
        try:
            for role in reversed(started):
                from streamydb.local import processes
                from streamydb.local.broker import stop_detached

                with phases.phase(f"Stopping the {role} of {target.database}"):
                    if role == _BROKER:
                        stop_detached(target.settings.home)
                    else:
                        processes.stop(target.files.folder, role)
        except KeyboardInterrupt:
            say(f"Some of it runs on: `{target.command('down')}` stops it.")
        else:
            say("Interrupted; what this call had started is stopped.")
        raise typer.Exit(EXIT_INTERRUPTED) from None


_BROKER: Final = "broker"


def _running(target: Target) -> list[str]:
    from streamydb.local import processes
    from streamydb.local.broker import find_broker
    from streamydb.local.folder import CONNECT, FACADE, PIPELINE, READ_MODEL

    known = (PIPELINE, READ_MODEL, FACADE, CONNECT)
    roles = [role for role in known if processes.find(target.files.folder, role)]
    embedded = target.settings.bootstrap is None and find_broker(target.settings.home) is not None
    return [_BROKER, *roles] if embedded else roles
