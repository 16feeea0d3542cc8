"""The Kafka topics of a database: their names, their settings, their creation and their checks.

A database `<db>` owns five topics, and two that its pipelines share. `create` makes them; `check`
compares what exists with what the database relies on and names, for each difference, the command
that mends it.
"""

from __future__ import annotations

from streamydb.topics.admin import TopicDescription, TopicsError
from streamydb.topics.checks import Problem, check, mend
from streamydb.topics.creation import (
    RECORD_BYTES_MAX,
    add_shared,
    create,
    delete,
    describe,
    grow,
    log_id,
    reshard,
)
from streamydb.topics.names import TopicNames

__all__ = [
    "RECORD_BYTES_MAX",
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
    "log_id",
    "mend",
    "reshard",
]
