"""The shared options of `backup`, `restore`, `trim` and `resize`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from streamydb.cli.phases import bar

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamydb.backup.copy import Subject
    from streamydb.cli.phases import Phase
    from streamydb.cli.target import Target


def subject_of(target: Target) -> Subject:
    """The database of a command, with the settings of its checkpoint if that is here. Raises
    Failure: nobody listens at Kafka's address; TopicsError: Kafka does not answer, or there is no
    such log; ConfigurationError: the checkpoint's record cannot be read.
    """
    from streamydb import kafka
    from streamydb.backup.copy import Subject
    from streamydb.kafka.foundation import FACTS, facts_of
    from streamydb.pipeline.record import read_record

    log = target.must_exist()
    settings, record = target.settings, target.files.record()
    log_id = kafka.log_id(target.connection, target.database)
    facts = kafka.recall(target.connection, target.database, log_id)
    recorded = read_record(target.files.checkpoint)
    if recorded is not None:
        facts = facts.completed(kafka.FoundingFacts(log=log_id, **facts_of(recorded)))
    created = record.partitions if record is not None else log.partitions
    fixed = {name: getattr(settings, name) for name in FACTS if name != "partitions"}
    facts = facts.completed(kafka.FoundingFacts(log=log_id, partitions=created, **fixed))
    return Subject(
        connection=target.connection,
        database=target.database,
        log=log_id,
        shards=_shards(target),
        grouping=settings.grouping,
        procedures=target.procedures,
        **{name: value for name, value in facts.known().items() if name != "grouping"},
    )


def _shards(target: Target) -> int:
    """The number of shards that is told; of a database that was made elsewhere: as its feedback
    has.
    """
    from streamydb import kafka

    if "shards" in target.settings.model_fields_set:  # the record of this home counts as well
        return target.settings.shards
    topics = kafka.describe(target.connection, target.database)
    feedback = topics.get(kafka.TopicNames(target.database).feedback)
    return target.settings.shards if feedback is None else feedback.partitions


def resolved_seq(target: Target) -> int:
    """The last seq whose outputs are all written. Raises ReadingError: Kafka does not answer."""
    from streamydb.kafka.positions import look

    settings = target.settings.model_copy(update={"bootstrap": target.bootstrap})
    return look(settings).seq


def noting(phase: Phase) -> Callable[[str, int, int], None]:
    def note(what: str, count: int, total: int) -> None:
        phase.note(f"{what} {bar(count, total)} {count:,} of {total:,}")

    return note


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
