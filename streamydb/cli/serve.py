"""`streamydb serve` and `read-model`: the side that people and programs read, in the foreground."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from streamydb.cli.common import EXIT_NO, EXIT_USAGE, fail, say, settings_message
from streamydb.cli.options import DatabaseOptions, seconds_option
from streamydb.cli.target import Target, find_target

if TYPE_CHECKING:
    from streamydb.facade import FacadeSettings
    from streamydb.read_model import ReadModel

POLL_S = 0.2  # how often `serve` looks whether the read model is there, in seconds

ReadModelFolder = Annotated[
    Path | None,
    typer.Option("--folder", help="The read model's folder (default: in the database's folder)."),
]


class Listening(NamedTuple):
    """The options of `serve` that are settings of the facade."""

    host: Annotated[str | None, typer.Option(help="Address to listen on (default: 127.0.0.1).")] = (
        None
    )
    port: Annotated[
        int | None, typer.Option(help="Port to listen on (default: 8080).", min=1, max=65535)
    ] = None
    tokens_file: Annotated[
        Path | None, typer.Option(help="Who may do what; needed off loopback.")
    ] = None
    tls_certificate_file: Annotated[
        Path | None, typer.Option(help="PEM file: certificate chain.")
    ] = None
    tls_key_file: Annotated[Path | None, typer.Option(help="PEM file: its private key.")] = None


def serve(
    options: DatabaseOptions,
    listening: Listening,
    folder: ReadModelFolder = None,
    timeout: Annotated[
        float, seconds_option("Seconds to wait for the read model to be there.")
    ] = 60.0,
) -> None:
    """Serve a database over HTTP in the foreground, until Ctrl-C; any number may run side by side.

    It reads from a read model on this machine, which `streamydb read-model` keeps up to date.
    """
    from streamydb.errors import StreamyError
    from streamydb.facade import serve_database
    from streamydb.facade.server import checked, listen
    from streamydb.local.broker.ports import authority

    target = find_target(options)
    facade = facade_settings(listening)
    try:
        checked(facade)
        listen(facade).close()  # a port that is taken is told before anything is waited for
        with _opened(target, folder or target.files.read_model, timeout) as model:
            address = authority(facade.host, facade.port)
            say(f"Serving {target.database} on {facade.scheme}://{address}")
            with suppress(KeyboardInterrupt):  # uvicorn raises it again when it has ended
                serve_database(target.settings, facade, model)
    except StreamyError as error:
        fail(str(error))


def facade_settings(listening: Listening) -> FacadeSettings:
    """The settings of the facade.
    Raises Failure: some make no sense. No value is shown: tokens are among them.
    """
    from pydantic import ValidationError
    from pydantic_settings import SettingsError

    from streamydb.facade import FacadeSettings

    options: dict[str, Any] = listening._asdict()
    try:
        return FacadeSettings(**{n: value for n, value in options.items() if value is not None})
    except ValidationError as error:
        fail(settings_message(error, options, "STREAMYDB_SERVE_"), EXIT_USAGE)
    except SettingsError:
        wrong = ", ".join(_no_json())
        fail(f'{wrong}: write a JSON list, such as ["https://app.example"]', EXIT_USAGE)


def _no_json() -> Iterator[str]:
    """The variables that are to hold JSON lists, and hold no JSON."""
    for name in ("ALLOWED_HOSTS", "CORS_ORIGINS"):
        variable = f"STREAMYDB_SERVE_{name}"
        try:
            json.loads(os.environ.get(variable) or "[]")
        except ValueError:
            yield variable


def read_model(
    options: DatabaseOptions,
    folder: ReadModelFolder = None,
    copy_from: Annotated[
        Path | None, typer.Option(help="Begin with a copy of this read model.")
    ] = None,
    from_snapshot: Annotated[
        str | None, typer.Option(help="Begin with this Parquet snapshot (a folder).")
    ] = None,
    retention_s: Annotated[
        float | None,
        typer.Option(help="Keep snapshots for so many seconds of commit time (inf: all)."),
    ] = None,
    retention_seqs: Annotated[
        float | None, typer.Option(help="Keep snapshots for so many transactions (inf: all).")
    ] = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Instead, compare it with one made anew from the topic, then end."
        ),
    ] = False,
) -> None:
    """Follow the changes into a read model in the foreground, until Ctrl-C.

    With --verify the exit code is 3 if the file does not have what the topic says.
    """
    from streamydb.read_model.service import run

    target = find_target(options)
    model_folder = folder or target.files.read_model
    if verify:
        _verify(target, model_folder)
        return
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    optional = {"retention_s": retention_s, "retention_seqs": retention_seqs}
    limits = {name: value for name, value in optional.items() if value is not None}
    run(target.settings, model_folder, copy_from=copy_from, from_snapshot=from_snapshot, **limits)


def _verify(target: Target, folder: Path) -> None:
    """Compare a read model with the topic, in a scratch folder beside it."""
    from streamydb.cli.phases import Phases, bar
    from streamydb.errors import StreamyError
    from streamydb.local.file_lock import scratch
    from streamydb.read_model import verify

    try:
        with (
            scratch(folder.parent, f".{folder.name}.verify-") as beside,
            Phases().phase(f"Reading the changes of {target.database}") as phase,
        ):
            comparison = verify(
                folder, target.settings, beside / "model",
                note=lambda done, total: phase.note(f"{bar(done, total)} seq {done:,}"),
            )  # fmt: skip
            phase.outcome = f"{comparison.entries:,} keys at seq {comparison.seq:,}"
    except (StreamyError, OSError) as error:
        fail(str(error))
    if not comparison.differing:
        say(f"{folder} has what the topic says.")
        return
    names = ", ".join(map(repr, comparison.differing))
    fail(
        f"{folder} is damaged; the first keys that differ: {names}. Stop its facades and its "
        "follower, delete the folder, and start them again: it is loaded from the topic.",
        EXIT_NO,
    )


def _opened(target: Target, folder: Path, timeout_s: float) -> ReadModel:
    from streamydb.read_model import ReadModel, StoreMissingError

    deadline = time.monotonic() + timeout_s
    ticks = threading.Event()
    while True:
        try:
            return ReadModel.open(folder, target.database)
        except StoreMissingError as error:
            if time.monotonic() > deadline:
                fail(str(error))
        ticks.wait(POLL_S)
