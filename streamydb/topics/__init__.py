"""The Kafka topics of a database: their names, their settings, their creation and their checks.

A database `<db>` owns five topics. `create` makes them; `check` compares what exists with what the
database relies on and names, for each difference, the command that mends it.
"""

from __future__ import annotations

from streamydb.topics.admin import TopicDescription, TopicsError
from streamydb.topics.checks import Problem, check, mend
from streamydb.topics.creation import (
    RECORD_BYTES_MAX,
    create,
    delete,
    describe,
    ensure_streams,
    grow,
)
from streamydb.topics.names import TopicNames

__all__ = [
    "RECORD_BYTES_MAX",
    "Problem",
    "TopicDescription",
    "TopicNames",
    "TopicsError",
    "check",
    "create",
    "delete",
    "describe",
    "ensure_streams",
    "grow",
    "mend",
]
