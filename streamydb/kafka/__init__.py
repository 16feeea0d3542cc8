"""The Kafka topics of a database: their names, their settings, their creation and their checks.

A database `<db>` owns five topics, two that its pipelines share, and one with what it was founded
with. `create` makes them; `check` compares what exists with what the database relies on and names,
for each difference, the command that mends it.
"""

from __future__ import annotations

from streamydb.kafka.admin import TopicDescription, TopicsError
from streamydb.kafka.checks import Problem, check, mend
from streamydb.kafka.creation import (
    RECORD_BYTES_MAX,
    add_shared,
    create,
    delete,
    describe,
    grow,
    log_id,
    reshard,
)
from streamydb.kafka.founding import Founding, recall, record
from streamydb.kafka.names import TopicNames
from streamydb.kafka.upkeep import is_synced, set_sync

__all__ = [
    "RECORD_BYTES_MAX",
    "Founding",
    "Problem",
    "TopicDescription",
    "TopicNames",
    "TopicsError",
    "add_shared",
    "check",
    "create",
    "delete",
    "describe",
    "grow",
    "is_synced",
    "log_id",
    "mend",
    "recall",
    "record",
    "reshard",
    "set_sync",
]
