"""The facts that a checkpoint records: the database's configuration, the topics it belongs to."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from streamydb.errors import ConfigurationError, RecordError
from streamydb.frames.protocol import FORMAT
from streamydb.frames.shards import ShardConfig
from streamydb.kafka.admin import TopicDescription, TopicsError
from streamydb.kafka.foundation import FACTS, FoundingFacts, facts_of, recall, record
from streamydb.kafka.names import TopicNames
from streamydb.kafka.reader import ReadingError, TopicMissingError, TopicReader
from streamydb.local.file_lock import write_whole
from streamydb.local.folder import CHECKPOINT_RECORD
from streamydb.pipeline.repair import REBUILD
from streamydb.records.begins import Begins
from streamydb.records.control import decode_message
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
    Raises ConfigurationError: the checkpoint was begun with other settings, by a newer release, or
    is damaged.
    """
    path = checkpoint / _RECORD
    config = ShardConfig(
        settings.database,
        uuid.uuid4().hex,
        settings.shards,
        partitions,
        settings.id_window,
        settings.grouping,
        digest_interval=settings.digest_interval,
        name=name,
    )
    recorded = read_record(checkpoint)
    if recorded is None:
        if (checkpoint / "query").exists():
            what = f"{path} is missing though {checkpoint / 'query'} exists"
            raise ConfigurationError(f"{what}; {REBUILD}")
        write_whole(path, msgspec.json.format(msgspec.json.encode(config)) + b"\n")
        return config
    has_partitions = "partitions" in settings.model_fields_set
    _refuse_drift(path, recorded, config, partitions=has_partitions)
    return recorded


def read_record(checkpoint: Path) -> ShardConfig | None:
    """The fixed configuration that a checkpoint has recorded; None: it has not begun.
    Raises ConfigurationError: it was begun by a newer release, or is damaged.
    """
    path = checkpoint / _RECORD
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        fields = msgspec.json.decode(data, type=dict[str, Any])
        if fields.get("format") != FORMAT:
            what = f"{path} was written with format {fields.get('format')}, this release has"
            fix = "run the matching release, or rebuild from the log (docs/upgrading.md)"
            raise ConfigurationError(f"{what} {FORMAT}; {fix}")
        return msgspec.convert(fields, ShardConfig)
    except UNREADABLE as error:
        raise ConfigurationError(f"{path} cannot be read ({error}); {REBUILD}") from error


def require_same_log(checkpoint: Path, log: str) -> None:
    """Refuse a log that is not the one on which this checkpoint was begun; a new checkpoint notes
    it.

    Offsets mean nothing in another log: Spark would go on in the middle of it.

    ``log``: Kafka's id of the log's topic, which a topic that is made anew does not have.
    Raises ConfigurationError: it is another log.
    """
    path = checkpoint / _LOG
    _require_log(path, log)
    _note(path, log)


def require_same_changes(
    checkpoint: Path, known: str, topic: str, begins_after: int, written: Callable[[], int | None]
) -> None:
    """Refuse changes that lack what is not written again; a new checkpoint notes whose they are.

    ``known``: Kafka's id of the topic of the changes. ``begins_after``: the seq of the state that
    this checkpoint began with; 0: it has none. ``written``: says up to which seq the topic has all
    changes; see `lack_beginning`.
    Raises ConfigurationError: the topic was made anew since the checkpoint began, or has not all
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
    Raises ConfigurationError: it is another one's, was begun by a newer release, or is damaged.
    """
    recorded = read_record(checkpoint)
    if recorded is not None and recorded.database != database:
        raise _drift(checkpoint / _RECORD, "database", recorded.database, database)
    _require_log(checkpoint / _LOG, log)


def _noted(path: Path, known: str) -> str:
    """Return the id that a checkpoint has noted.

    A new checkpoint has noted none: then it is the known one.
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
    names = ("database", "shards", "id_window", "grouping", "digest_interval", "name")
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


log = logging.getLogger("streamydb.pipeline")

_BINDING: Final = ("partitions", "id_window", "digest_interval")
"""The facts that outputs follow from; the grouping changes no output."""


def founded(
    settings: Settings,
    checkpoint: Path,
    known_log: str,
    log_topic: TopicDescription,
    results: TopicDescription,
    changes: Mapping[str, int],
) -> tuple[Settings, Begins]:
    """Return the settings, completed by the founding facts, and where rules begin in the log.

    ``settings``: as options and environment say. ``changes``: Kafka's id of the topic of the
    changes, and how many partitions it has.
    Raises ConfigurationError: the checkpoint is another database's; an option contradicts a fact,
    or nobody can tell how many partitions the log began with.
    """
    connection, database = settings.client_config(), settings.database
    require_own(checkpoint, database, known_log)  # before its facts are taken for this log's
    known = before = recall(connection, database, known_log)
    recorded = read_record(checkpoint)
    if recorded is not None:
        known = known.completed(FoundingFacts(log=known_log, **facts_of(recorded)))
    elif set(FACTS) - set(known.known()):
        for announced in _told(connection, database, known_log):
            known = known.completed(announced)
    facts = begun(settled(settings, known, log_topic), log_topic, results)
    facts = facts.completed(FoundingFacts(log=known_log, changes=dict(changes)))
    holds = record(connection, database, facts)
    if holds != before:
        log.info("recorded what the database was founded with: %s", holds.known())
    _refuse(settings, holds)
    fixed = holds.known()
    if "grouping" in settings.model_fields_set:
        fixed["grouping"] = settings.grouping
    elif recorded is not None:
        fixed["grouping"] = recorded.grouping
    return settings.model_copy(update=fixed), holds.begins


def begun(
    facts: FoundingFacts, log_topic: TopicDescription, results: TopicDescription
) -> FoundingFacts:
    """Return these facts, with a beginning for every rule of this release that has none yet.

    Where nothing was ever executed, rules hold from the beginning; otherwise from where the log
    ends now, before which an earlier release may have executed everything.
    """
    ends = dict(enumerate(log_topic.ends)) if any(results.ends) else {}
    begins = Begins(dict.fromkeys(facts.begins.missing(), ends))
    return facts.completed(FoundingFacts(log=facts.log, begins=begins))


def settled(settings: Settings, known: FoundingFacts, log_topic: TopicDescription) -> FoundingFacts:
    """Return all facts: the recorded ones, then those that are given, then what follows from the
    log.
    Raises ConfigurationError: what is given contradicts what is known, or nothing tells the number
    of partitions.
    """
    _refuse(settings, known)
    given = facts_of(settings)
    partitions = known.partitions
    if partitions is None:
        partitions = _partitions(settings, log_topic)
    elif partitions > log_topic.partitions:
        raise ConfigurationError(
            f"{log_topic.name} has {log_topic.partitions} partitions, but it was founded with "
            f"{partitions}: is it another cluster's?"
        )
    rest = FoundingFacts(log=known.log, **{**given, "partitions": partitions})
    return known.completed(rest)


def of_terms(known_log: str, terms: str) -> FoundingFacts:
    """Return the facts among the settings that a pipeline has announced (`ShardConfig.terms`)."""
    terms_by_name = dict(part.split("=", 1) for part in terms.split() if "=" in part)
    facts: dict[str, Any] = {
        name: int(terms_by_name[name])
        for name in ("partitions", "id_window", "digest_interval")
        if terms_by_name.get(name, "").isdigit()
    }
    return FoundingFacts(log=known_log, **facts)


def _partitions(settings: Settings, log_topic: TopicDescription) -> int:
    """Return the number of partitions that a log began with, if nobody has recorded it.

    A log with one partition, or without any record, has not grown. Markers name how many there
    were when they were written; a log may have grown before the first one.
    """
    present = log_topic.partitions
    if "partitions" in settings.model_fields_set:
        if settings.partitions > present:
            what = f"the log has {present} partitions, so it cannot have begun with"
            raise ConfigurationError(f"{what} {settings.partitions}; mend --partitions")
        return settings.partitions
    if present == 1 or not any(log_topic.ends):
        return present
    raise ConfigurationError(
        f"{log_topic.name} has {present} partitions, and nothing says how many it had when the "
        "database was created, which decides the order. Start once on the old checkpoint, or give "
        f"--partitions: {present} if none was ever added, else the number it was created with"
    )


def _told(connection: Mapping[str, str], database: str, known_log: str) -> Iterator[FoundingFacts]:
    """Yield the settings that pipelines over the log have announced and Kafka still keeps."""
    try:
        with TopicReader(connection, TopicNames(database).control) as reader:
            for each in reader.whole():
                try:
                    message = decode_message(each.value())
                except RecordError:
                    continue
                if message.log == known_log and message.terms:
                    yield of_terms(known_log, message.terms)
    except TopicMissingError:
        return
    except ReadingError as error:
        raise TopicsError(str(error)) from error


def _refuse(settings: Settings, known: FoundingFacts) -> None:
    for name in _BINDING:
        fact = getattr(known, name)
        if fact is None or name not in settings.model_fields_set:
            continue
        given = getattr(settings, name)
        if given != fact:
            option = f"--{name.replace('_', '-')}"
            raise ConfigurationError(
                f"the database {settings.database} was founded with {name}={fact}, now {given} is "
                f"given; leave {option} (STREAMYDB_{name.upper()}) out: what was executed follows "
                "from it, so only another database can have another"
            )
