"""A pipeline's start takes the founding facts from the database itself.

They lie beside the log (`streamydb.kafka.foundation`). A database of an earlier release has no such
record: the first start takes the facts from its checkpoint, or from the messages of pipelines, or
from the log where that leaves no doubt, and records them. It also records where the rules of this
release begin: what earlier releases may have executed keeps its meaning.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from streamydb.columns.shards import ShardConfig
from streamydb.errors import ConfigurationError, RecordError
from streamydb.kafka.admin import TopicDescription, TopicsError
from streamydb.kafka.foundation import FACTS, Founding, facts_of, recall, record
from streamydb.kafka.names import TopicNames
from streamydb.kafka.reader import ReadingError, TopicMissingError, TopicReader
from streamydb.pipeline.record import read_record, require_own
from streamydb.records.begins import Begins
from streamydb.records.control import decode_message
from streamydb.settings import Settings

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

    Args:
        settings: as options and environment say.
        checkpoint: the pipeline's folder.
        known_log: Kafka's id of the log.
        log_topic: the log.
        results: the topic of the results.
        changes: Kafka's id of the topic of the changes, and how many partitions it has.

    Raises:
        ConfigurationError: the checkpoint is another database's; an option contradicts a fact, or
            nobody can tell how many partitions the log began with.
    """
    connection, database = settings.client_config(), settings.database
    require_own(checkpoint, database, known_log)  # before its facts are taken for this log's
    known = before = recall(connection, database, known_log)
    recorded = read_record(checkpoint)
    if recorded is not None:
        known = known.completed(_of_config(known_log, recorded))
    elif set(FACTS) - set(known.known()):
        for told in _told(connection, database, known_log):
            known = known.completed(told)
    facts = begun(settled(settings, known, log_topic), log_topic, results)
    facts = facts.completed(Founding(log=known_log, changes=dict(changes)))
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


def begun(facts: Founding, log_topic: TopicDescription, results: TopicDescription) -> Founding:
    """Return these facts, with a place for every rule of this release that has none yet.

    Where nothing was ever executed, rules hold from the beginning; otherwise from where the log
    ends now, before which an earlier release may have executed everything.
    """
    ends = dict(enumerate(log_topic.ends)) if any(results.ends) else {}
    begins = Begins(dict.fromkeys(facts.begins.missing(), ends))
    return facts.completed(Founding(log=facts.log, begins=begins))


def settled(settings: Settings, known: Founding, log_topic: TopicDescription) -> Founding:
    """Return all facts: the recorded ones, then those that are given, then what follows from the
    log.

    Raises:
        ConfigurationError: what is given contradicts what is known, or nothing tells the number of
            partitions.
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
    rest = Founding(log=known.log, **{**given, "partitions": partitions})
    return known.completed(rest)


def of_terms(known_log: str, terms: str) -> Founding:
    """Return the facts among the settings that a pipeline has announced (`ShardConfig.terms`)."""
    named = dict(part.split("=", 1) for part in terms.split() if "=" in part)
    facts: dict[str, Any] = {
        name: int(named[name])
        for name in ("partitions", "id_window", "digest_interval")
        if named.get(name, "").isdigit()
    }
    if named.get("constraints") in ("True", "False"):
        facts["constraints"] = named["constraints"] == "True"
    return Founding(log=known_log, **facts)


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


def _of_config(known_log: str, config: ShardConfig) -> Founding:
    return Founding(log=known_log, **facts_of(config))


def _told(connection: Mapping[str, str], database: str, known_log: str) -> Iterator[Founding]:
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


def _refuse(settings: Settings, known: Founding) -> None:
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
