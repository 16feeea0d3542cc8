"""A read model's own process: it follows a database's changes until SIGTERM or SIGINT."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge

from streamydb.errors import ConfigurationError, StreamyError
from streamydb.kafka.changes import KafkaSource
from streamydb.kafka.connection import is_transient, listens
from streamydb.kafka.names import TopicNames
from streamydb.local.exposition import serve
from streamydb.local.own_process import compiles, keep_all, renew, trim_when_idle
from streamydb.local.signals import stop_event
from streamydb.read_model.core import ResolvedPoint, Retention
from streamydb.read_model.errors import StoreMismatchError
from streamydb.read_model.follower import RETENTION_S, RETENTION_SEQS, Follower
from streamydb.read_model.load import copy_to, load
from streamydb.read_model.model import ReadModel
from streamydb.read_model.warmup import warm_up
from streamydb.settings import Settings


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

    ``folder``: the read model's folder, on a local disk; it is new if nothing is in it.
    ``copy_from``: a read model that a new one begins with a copy of. ``from_snapshot``: a Parquet
    snapshot that a new one begins with. ``retention_s``: for how many seconds of commit time
    snapshots are kept at least. ``retention_seqs``: for how many transactions they are kept at
    least. Raises ConfigurationError: a retention is negative, or no number. Raises StreamyError: it
    cannot be loaded, or cannot go on.
    """
    try:
        Retention(retention_s, retention_seqs)
    except ValueError as fault:
        raise ConfigurationError(str(fault)) from fault
    if not folder.exists() or not any(folder.iterdir()):
        _begin(settings, folder, copy_from, from_snapshot)
    if compiles(warm_up):  # takes twenty seconds, the first time on a machine
        renew()
    with ReadModel.open(folder, settings.database, write=True) as model:
        follower = Follower(model, settings, retention_s=retention_s, retention_seqs=retention_seqs)
        end_metrics = serve(registry_of(model), settings)
        try:
            keep_all()
            trim_when_idle()
            with stop_event() as stop:
                follower.run(stop)
        finally:
            end_metrics()


def _begin(
    settings: Settings, folder: Path, copy_from: Path | None, from_snapshot: str | None
) -> None:
    """Load a new read model with what it is to begin with, if that is of the present database."""
    topic_id = _topic_id(settings)
    if from_snapshot is not None:
        from streamydb.backup.snapshots import read_manifest

        if topic_id is not None:
            _must_be_of(topic_id, read_manifest(from_snapshot).topic, from_snapshot)
        load(from_snapshot, folder, settings.database)
    elif copy_from is not None:
        with ReadModel.open(copy_from, settings.database) as original:
            if topic_id is not None:
                _must_be_of(topic_id, original.progress().topic_id, copy_from)
            copy_to(original, folder)


def _must_be_of(present: str, known: str, place: Path | str) -> None:
    """Refuse what was read from an earlier topic of the same name."""
    if known not in ("", present):
        raise StoreMismatchError(
            f"what is in {place} was read from changes with Kafka's id {known}; now the database "
            f"has others, with id {present}. Begin with a copy or a snapshot that was made since, "
            "or without one"
        )


def _topic_id(settings: Settings) -> str | None:
    """Kafka's id of the changes; None if Kafka is away: then the follower finds out later."""
    if not listens(settings.bootstrap_servers):
        return None
    source = KafkaSource(settings.client_config(), TopicNames(settings.database).changes)
    try:
        return source.describe().topic_id
    except StreamyError as error:
        if not is_transient(error):
            raise
        return None
    finally:
        source.close()


def registry_of(model: ReadModel) -> CollectorRegistry:
    registry = CollectorRegistry()

    def show(name: str, text: str, value: Callable[[ResolvedPoint], float]) -> None:
        def ask() -> float:
            try:
                return value(model.latest())
            except StreamyError:
                return math.nan

        gauge = Gauge(f"streamydb_read_model_{name}", text, registry=registry)
        gauge.set_function(ask)

    show("seq", "Last seq that reads see", lambda at: at.seq)
    show("timestamp_seconds", "Commit time of that seq", lambda at: at.ts_ms / 1000)
    show("covered_records", "Log records up to that seq", lambda at: sum(at.offsets.values()))
    return registry
