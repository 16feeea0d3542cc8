"""The founding facts of a database, kept beside its log for good, so that no start contradicts
them.

`<db>.founding` holds small JSON records. Each names facts; for each fact the first record that
names it holds, so that two who write at the same time agree. Records of another log of that name
are passed over. Beside the facts lies where each rule begins (`records.begins`), rule by
rule alike, and how many partitions the changes began with, topic by topic, and which of these
topics lack something. The generations that the history has had (`records.generation`) only get
more: the longest list holds, the first one of two that are as long.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from streamydb.errors import ConfigurationError
from streamydb.kafka.admin import TopicsError
from streamydb.kafka.appender import TopicAppender
from streamydb.kafka.names import TopicNames
from streamydb.kafka.reader import ReadingError, TopicMissingError, TopicReader
from streamydb.records.begins import Begins
from streamydb.records.formats import FORMAT, UNREADABLE, later_format
from streamydb.records.generation import FIRST, generation_of

FACTS: Final = ("partitions", "id_window", "digest_interval", "grouping")  # the names of the facts
_KEY: Final = b"founding"


class FoundingFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The founding facts of a database that are known; None: nobody has recorded it.

    Attributes:
        log: Kafka's id of its log.
        partitions: of the log when it was created.
        id_window: for how many seqs an id is remembered.
        digest_interval: transactions from one digest to the next.
        grouping: of the first pipeline; another pipeline may have another one.
        begins: from where in the log on the rules hold that releases have added.
        changes: partitions that the topic of the changes began with, by Kafka's id of it: one that
            was made anew may have others.
        lacking: ids of topics of the changes that were made anew while a pipeline ran. It wrote on
            there, so they lack what was written before, and nobody may use them.
        generations: those that the history has had, without the first one; the last one holds.
    """

    log: str
    partitions: int | None = None
    id_window: int | None = None
    digest_interval: int | None = None
    grouping: str | None = None
    begins: Begins = Begins()
    changes: dict[str, int] = msgspec.field(default_factory=dict)
    lacking: frozenset[str] = frozenset()
    generations: tuple[str, ...] = ()
    format: int = FORMAT

    def known(self) -> dict[str, Any]:
        facts = {name: getattr(self, name) for name in FACTS}
        return {name: value for name, value in facts.items() if value is not None}

    @property
    def generation(self) -> str:
        return self.generations[-1] if self.generations else FIRST

    def completed(self, other: FoundingFacts) -> FoundingFacts:
        begins = self.begins.completed(other.begins)
        changes = {**other.changes, **self.changes}
        return msgspec.structs.replace(
            self,
            **{**other.known(), **self.known()},
            begins=begins,
            changes=changes,
            lacking=self.lacking | other.lacking,
            generations=max(self.generations, other.generations, key=len),
        )


def facts_of(source: object) -> dict[str, Any]:
    """The facts among the attributes of settings, of a checkpoint's record or of a backup's."""
    return {name: getattr(source, name) for name in FACTS}


def merged(log: str, values: Iterable[bytes]) -> FoundingFacts:
    """The facts of a log that records name, in the order of the topic: the first one holds.
    Raises ConfigurationError: a newer release has written one.
    """
    facts = FoundingFacts(log=log)
    for value in values:
        if later_format(value) is not None:
            raise ConfigurationError(
                "the founding facts of this database were written by a newer release: use that one"
            )
        try:
            each = msgspec.json.decode(value, type=FoundingFacts)
        except UNREADABLE:
            continue
        if each.log == log:
            facts = facts.completed(each)
    return facts


def recall(connection: Mapping[str, str], database: str, log: str) -> FoundingFacts:
    """Return the founding facts of a database, as far as somebody has recorded them.
    Raises ConfigurationError: a newer release has recorded it.
    """
    try:
        with TopicReader(connection, TopicNames(database).founding) as reader:
            values = [record.value() or b"" for record in reader.whole()]
    except TopicMissingError:
        return FoundingFacts(log=log)
    except ReadingError as error:
        raise TopicsError(str(error)) from error
    return merged(log, values)


def record(connection: Mapping[str, str], database: str, facts: FoundingFacts) -> FoundingFacts:
    """Record facts, unless others were recorded first; return the facts that hold now.
    Raises TopicsError: the topic took no record, or Kafka does not answer.
    """
    known = recall(connection, database, facts.log)
    if known.completed(facts) == known:
        return known
    with TopicAppender(connection, TopicNames(database).founding, TopicsError) as appender:
        appender.append(msgspec.json.encode(facts), key=_KEY, partition=0)
    return recall(connection, database, facts.log)


def renew(connection: Mapping[str, str], database: str, log: str, topic_id: str) -> str:
    """Record that another generation begins, in a topic with this id; return it.

    A call that is repeated changes nothing.

    ``topic_id``: Kafka's id of the topic that the new history begins in.
    """
    known, begun = recall(connection, database, log).generations, generation_of(topic_id)
    if begun not in known:
        record(connection, database, FoundingFacts(log=log, generations=(*known, begun)))
    return begun
