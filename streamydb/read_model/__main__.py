"""`python -m streamydb.read_model`: follow a database's changes until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from streamydb.errors import StreamyError
from streamydb.garbage import keep_all
from streamydb.read_model.copies import copy_to
from streamydb.read_model.follower import RETENTION_S, RETENTION_SEQS, Follower
from streamydb.read_model.loading import load
from streamydb.read_model.metrics import serve_metrics
from streamydb.read_model.model import ReadModel
from streamydb.settings import Settings
from streamydb.stopping import stop_event

__all__ = ["main"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "streamydb-read-model", description="Keep a read model of a database up to date."
    )
    add = parser.add_argument
    add("--database", help="name of the database")
    add("--bootstrap", help="Kafka's address, host:port[,host:port]")
    add("--folder", type=Path, required=True, help="the read model's folder, on a local disk")
    add("--copy-from", type=Path, help="if --folder does not exist: begin with a copy of this one")
    add("--from-snapshot", help="if --folder does not exist: begin with this Parquet snapshot")
    add(
        "--retention-s", type=float, default=RETENTION_S,
        help="keep snapshots for at least so many seconds of commit time; inf: for good",
    )
    add(
        "--retention-seqs", type=float, default=RETENTION_SEQS,
        help="keep snapshots for at least so many transactions; inf: for good",
    )
    add("--log-level", default="INFO")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Follow; the process's exit code: 0 after a signal, 2 when it cannot go on."""
    given = _parser().parse_args(arguments)
    logging.basicConfig(
        level=given.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    try:
        _follow(given)
    except (StreamyError, ValueError) as error:
        sys.stderr.write(f"streamydb read model: {error}\n")
        return 2
    return 0


def _follow(given: argparse.Namespace) -> None:
    """Load if there is nothing yet, then follow until a signal comes; one ends a load at once."""
    named = {"database": given.database, "bootstrap": given.bootstrap}
    settings = Settings(**{name: text for name, text in named.items() if text is not None})
    if given.from_snapshot is not None and not given.folder.exists():
        load(given.from_snapshot, given.folder, settings.database)
    elif given.copy_from is not None and not given.folder.exists():
        with ReadModel.open(given.copy_from, settings.database) as original:
            copy_to(original, given.folder)
    with ReadModel.open(given.folder, settings.database, write=True) as model:
        follower = Follower(
            model, settings, retention_s=given.retention_s, retention_seqs=given.retention_seqs
        )
        end_metrics = serve_metrics(model, settings)
        try:
            keep_all()
            with stop_event() as stop:
                follower.run(stop)
        finally:
            end_metrics()


if __name__ == "__main__":
    sys.exit(main())
