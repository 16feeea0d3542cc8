"""Kafka: every client of it, the topics of a database, and the readers and appenders.

In: names, settings, records. Out: topics that exist as the database relies on (`creation`,
`checks`), records read (`reader`, `follower`, `changes`, `streams`, all by the one loop of
`receiving`, or in columns by `librdkafka`) and appended (`appender`, `producer`). `clients` makes
every raw client, `connection` says what is wrong with one and how to mend it, `errors` has what
other rooms catch: no other room imports a client of Kafka.

Invariants: every reader reads uncommitted; whatever differs from what is relied on is named, with
the command that mends it; nothing waits for a broker without a bound.
"""

from __future__ import annotations

from streamydb.kafka.admin import TopicDescription, TopicsError, is_synced, set_sync
from streamydb.kafka.checks import TopicProblem, changes_problems, check, mend
from streamydb.kafka.creation import (
    add_connect,
    add_shared,
    create,
    delete,
    describe,
    grow,
    log_id,
    reshard,
)
from streamydb.kafka.foundation import FoundingFacts, recall, record, renew
from streamydb.kafka.names import TopicNames
from streamydb.kafka.topic_plans import RECORD_BYTES_MAX, Copies, copies_for

__all__ = [
    "RECORD_BYTES_MAX",
    "Copies",
    "FoundingFacts",
    "TopicDescription",
    "TopicNames",
    "TopicProblem",
    "TopicsError",
    "add_connect",
    "add_shared",
    "changes_problems",
    "check",
    "copies_for",
    "create",
    "delete",
    "describe",
    "grow",
    "is_synced",
    "log_id",
    "mend",
    "recall",
    "record",
    "renew",
    "reshard",
    "set_sync",
]
