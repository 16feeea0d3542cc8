"""The facts that a checkpoint records: the database's configuration,
and the topics it belongs to.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from streamydb.columns.protocol import FORMAT, READABLE
from streamydb.columns.shards import ShardConfig, taken_over
from streamydb.errors import ConfigurationError
from streamydb.local.file_lock import write_whole
from streamydb.local.folder import CHECKPOINT_RECORD
from streamydb.pipeline.repair import REBUILD
from streamydb.records.formats import UNREADABLE
from streamydb.settings import Settings

_RECORD: Final = CHECKPOINT_RECORD
_LOG: Final = "log-id"
_CHANGES: Final = "changes-id"
_ANEW: Final = "see docs/operations.md, 'The changes were made anew'"


def recorded_config(
    checkpoint: Path, settings: Settings, partitions: int, name: str = ""
) -> ShardConfig:
    """The fixed configuration of the database, as this checkpoint began it; new: begun now.

    Raises:
        ConfigurationError: the checkpoint was begun with other settings, by a newer release, or is
        damaged.

    """
    path = checkpoint / _RECORD
    given = ShardConfig(
        settings.database,
        uuid.uuid4().hex,
        settings.shards,
        partitions,
        settings.id_window,
        settings.grouping,
        digest_interval=settings.digest_interval,
        name=name,
        constraints=settings.constraints,
    )
    recorded = read_record(checkpoint)
    if recorded is None:
        if (checkpoint / "query").exists():
            what = f"{path} is missing though {checkpoint / 'query'} exists"
            raise ConfigurationError(f"{what}; {REBUILD}")
        _write_record(path, given)
        return given
    told = "partitions" in settings.model_fields_set
    _refuse_drift(path, recorded, given, partitions=told)
    _write_record(path, recorded)  # in this release's format: an earlier one refuses it from now on
    return recorded


def _write_record(path: Path, config: ShardConfig) -> None:
    write_whole(path, msgspec.json.format(msgspec.json.encode(config)) + b"\n")


def read_record(checkpoint: Path) -> ShardConfig | None:
    """The fixed configuration that a checkpoint has recorded; None: it has not begun.

    Raises:
        ConfigurationError: it was begun by a newer release, or is damaged.

    """
    path = checkpoint / _RECORD
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        found = msgspec.json.decode(data, type=dict[str, Any])
        if found.get("format") not in READABLE:
            what = f"{path} was written with format {found.get('format')}, this release has"
            fix = "run the matching release, or rebuild from the log (docs/upgrading.md)"
            raise ConfigurationError(f"{what} {FORMAT}; {fix}")
        return taken_over(msgspec.convert(found, ShardConfig))
    except UNREADABLE as error:
        raise ConfigurationError(f"{path} cannot be read ({error}); {REBUILD}") from error


def require_same_log(checkpoint: Path, log: str) -> None:
    """Refuse a log that is not the one on which this checkpoint was begun; a new checkpoint notes
    it.

    Offsets mean nothing in another log: Spark would go on in the middle of it.

    Args:
        checkpoint: the folder.
        log: Kafka's id of the log's topic, which a topic that is made anew does not have.

    Raises:
        ConfigurationError: it is another log.
    """
    path = checkpoint / _LOG
    _require_log(path, log)
    _note(path, log)


def require_same_changes(
    checkpoint: Path, known: str, topic: str, begins_after: int, written: Callable[[], int | None]
) -> None:
    """Refuse changes that lack what is not written again; a new checkpoint notes whose they are.

    Args:
        checkpoint: the folder.
        known: Kafka's id of the topic of the changes.
        topic: its name.
        begins_after: the seq of the state that this checkpoint began with; 0: it has none.
        written: says up to which seq the topic has all changes; see `lack_beginning`.

    Raises:
        ConfigurationError: the topic was made anew since the checkpoint began, or has not all
            changes up to the state's seq.
    """
    path = checkpoint / _CHANGES
    if _noted(path, known) != known:
        raise ConfigurationError(made_anew(checkpoint, topic))
    if begins_after and not path.exists() and lack_beginning(there := written(), begins_after):
        raise ConfigurationError(
            f"{topic} has the changes up to seq {there}, and this pipeline began with the state at "
            f"seq {begins_after}: readers would lack those between. Begin a new checkpoint without "
            f"a state, from the log's beginning; {_ANEW}"
        )
    _note(path, known)


def made_anew(checkpoint: Path, topic: str) -> str:
    """Say that the changes are not those that a checkpoint has written to, and what helps."""
    return (
        f"{topic} was made anew since {checkpoint} began: what was written before is "
        "not in it, and readers would lack it. Execute the log again, from its beginning: "
        f"`streamydb rebuild`, or a new checkpoint; {_ANEW}"
    )


def lack_beginning(written: int | None, seq: int) -> bool:
    """Return True if changes that go on behind the state at a seq would lack some that led to it.

    ``written``: up to which seq all are there; None: nobody knows, as old records were deleted.
    """
    return written is not None and written < seq


def require_own(checkpoint: Path, database: str, log: str) -> None:
    """Refuse a checkpoint of another database or log; nothing is written.

    Raises:
        ConfigurationError: it is another one's, was begun by a newer release, or is damaged.
    """
    recorded = read_record(checkpoint)
    if recorded is not None and recorded.database != database:
        raise _drift(checkpoint / _RECORD, "database", recorded.database, database)
    _require_log(checkpoint / _LOG, log)


def _noted(path: Path, known: str) -> str:
    """Return the id that a checkpoint has noted.

    A new checkpoint has noted none, nor has one of an earlier release: then it is the known one.
    """
    return path.read_text("utf-8").strip() if path.exists() else known


def _note(path: Path, known: str) -> None:
    if not path.exists():
        write_whole(path, f"{known}\n".encode())


def _require_log(path: Path, log: str) -> None:
    recorded = _noted(path, log)
    if recorded != log:
        raise ConfigurationError(
            f"{path} names the log {recorded}, the topic's id is {log}: this is another log. "
            "Name the cluster that the checkpoint belongs to; if the topics were made anew, start "
            "with a new checkpoint folder"
        )


def _refuse_drift(
    path: Path, recorded: ShardConfig, given: ShardConfig, *, partitions: bool
) -> None:
    """Refuse settings that differ from the recorded ones.

    ``partitions``: somebody has said how many the log began with. If nobody has, the number is the
    present one, and the log may have grown.
    """
    names = (
        "database",
        "shards",
        "id_window",
        "grouping",
        "constraints",
        "digest_interval",
        "name",
    )
    for name in (*names, "partitions") if partitions else names:
        old, new = getattr(recorded, name), getattr(given, name)
        if old != new:
            raise _drift(path, name, old, new)


def _drift(path: Path, name: str, old: object, new: object) -> ConfigurationError:
    other = (
        "change it with `streamydb resize`" if name == "shards" else "with a new checkpoint folder"
    )
    fix = f"start with {name}={old}, or {other}"
    return ConfigurationError(f"{path} records {name}={old!r}, now {new!r} is given; {fix}")
