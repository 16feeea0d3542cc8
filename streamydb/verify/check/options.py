"""The options of a check; where they say nothing, the facts that the database was founded with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from streamydb.kafka import FoundingFacts, TopicsError, log_id, recall
from streamydb.limits import ID_WINDOW_DEFAULT
from streamydb.procedures.modules import NO_MODULES, Modules

if TYPE_CHECKING:
    from streamydb.backup.pieces import LogSource


class CheckProgress(NamedTuple):
    """The progress of the check: what it does, and how many of how many records."""

    name: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """The options of a check.

    Attributes:
        initial_partitions: partitions of the log at the database's creation; None = as is recorded
            beside the log, else as many as now.
        id_window: for how many seqs an id is remembered; None = as is recorded, else the default.
        timeout_s: how long to wait for outputs that are missing at the end.
        modules: where the code of stored procedures is.
        trimmed: where the records are that the log does not have any more.
        progress: called from time to time.
    """

    connection: Mapping[str, str]
    database: str
    initial_partitions: int | None = None
    id_window: int | None = None
    timeout_s: float = 60.0
    modules: Modules = NO_MODULES
    trimmed: LogSource | None = None
    progress: Callable[[CheckProgress], None] = field(default=lambda _step: None)


def founded(options: CheckOptions) -> CheckOptions:
    """The options, with what the database was founded with where they say nothing."""
    values = (options.initial_partitions, options.id_window)
    if None not in values:
        return options
    try:
        log = log_id(options.connection, options.database)
    except TopicsError:  # whoever reads the log says what is wrong
        log = ""
    known = recall(options.connection, options.database, log) if log else FoundingFacts(log=log)
    partitions, window = values
    return replace(
        options,
        initial_partitions=known.partitions if partitions is None else partitions,
        id_window=(known.id_window or ID_WINDOW_DEFAULT) if window is None else window,
    )
