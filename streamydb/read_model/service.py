"""A read model's own process: it follows a database's changes until SIGTERM or SIGINT."""

from __future__ import annotations

from pathlib import Path

from streamydb.errors import ConfigurationError, StreamyError
from streamydb.kafka.changes import KafkaSource
from streamydb.kafka.connection import is_transient, listens
from streamydb.kafka.names import TopicNames
from streamydb.local.collector import keep_all
from streamydb.local.exposition import serve
from streamydb.local.signals import stop_event
from streamydb.read_model.copies import copy_to
from streamydb.read_model.core import Retention
from streamydb.read_model.follower import RETENTION_S, RETENTION_SEQS, Follower
from streamydb.read_model.load import load
from streamydb.read_model.metrics import registry_of
from streamydb.read_model.model import ReadModel
from streamydb.read_model.warmup import warm_up
from streamydb.settings import Settings

__all__ = ["run"]


def run(
    settings: Settings,
    folder: Path,
    *,
    copy_from: Path | None = None,
    from_snapshot: str | None = None,
    retention_s: float = RETENTION_S,
    retention_seqs: float = RETENTION_SEQS,
) -> None:
    """Load if there is nothing yet, then follow until a signal comes; one ends a load at once.

    Args:
        settings: the database and the connection.
        folder: the read model's folder, on a local disk; it is new if nothing is in it.
        copy_from: a read model that a new one begins with a copy of.
        from_snapshot: a Parquet snapshot that a new one begins with.
        retention_s: for how many seconds of commit time snapshots are kept at least.
        retention_seqs: for how many transactions they are kept at least.

    Raises:
        ConfigurationError: a retention is negative, or no number.
        StreamyError: it cannot be loaded, or cannot go on.
    """
    try:
        Retention(retention_s, retention_seqs)
    except ValueError as fault:
        raise ConfigurationError(str(fault)) from fault
    is_new = not folder.exists() or not any(folder.iterdir())
    if is_new:
        _must_exist(settings)
    if from_snapshot is not None and is_new:
        load(from_snapshot, folder, settings.database)
    elif copy_from is not None and is_new:
        with ReadModel.open(copy_from, settings.database) as original:
            copy_to(original, folder)
    warm_up()  # takes twenty seconds the first time on a machine
    with ReadModel.open(folder, settings.database, write=True) as model:
        follower = Follower(
            model, settings, retention_s=retention_s, retention_seqs=retention_seqs
        )
        end_metrics = serve(registry_of(model), settings)
        try:
            keep_all()
            with stop_event() as stop:
                follower.run(stop)
        finally:
            end_metrics()


def _must_exist(settings: Settings) -> None:
    """Refuse a database that Kafka does not have, before a folder is made for it.

    If Kafka is away, the follower finds that out later.

    Raises:
        StreamyError: there are no changes to follow.
    """
    if not listens(settings.bootstrap_servers):
        return
    source = KafkaSource(settings.client_config(), TopicNames(settings.database).changes)
    try:
        source.describe()
    except StreamyError as error:
        if not is_transient(error):
            raise
    finally:
        source.close()
