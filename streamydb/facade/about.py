"""The facts about a database that a facade tells and does not work with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from streamydb.errors import StreamyError
from streamydb.facade.life.evidence import Evidence
from streamydb.facade.life.kafka import collect
from streamydb.kafka.digests import ShardDigests, last_digests
from streamydb.kafka.presence import Seen, seen
from streamydb.local.folder import DatabaseFolder, PipelineStatus
from streamydb.records import Result
from streamydb.settings import Settings

_DIGESTS = 20


class PipelineMessages(msgspec.Struct, kw_only=True):
    """The messages of pipelines to each other in Kafka; None: they cannot be read now."""

    heard: list[Seen] | None = None
    digests: list[ShardDigests] | None = None
    why: list[str] = []


def _nothing() -> dict[str, PipelineStatus]:
    return {}


@dataclass(frozen=True, slots=True)
class About:
    """The facts about a database.

    Attributes:
        here: the status of each pipeline that was started on this machine, by name.
        told: asks Kafka, which takes time; None: there is no Kafka.
        evidence: asks Kafka for the traces of a transaction with a verdict, which takes time.
    """

    database: str = ""
    here: Callable[[], Mapping[str, PipelineStatus]] = _nothing
    told: Callable[[], PipelineMessages] | None = None
    evidence: Callable[[Result], Evidence] | None = None


def about_database(settings: Settings) -> About:
    folder = DatabaseFolder(settings.home, settings.database)

    def here() -> dict[str, PipelineStatus]:
        statuses = {name: folder.status(name) for name in ("", *folder.others())}
        return {name: status for name, status in statuses.items() if status.updated_ms is not None}

    def evidence(result: Result) -> Evidence:
        return collect(settings.client_config(), settings.database, result)

    return About(settings.database, here, lambda: _told(settings), evidence)


def _told(settings: Settings) -> PipelineMessages:
    """Read the ends of both topics; say why, if one cannot be read."""
    from streamydb.kafka.reader import ReadingError

    connection, messages = settings.client_config(), PipelineMessages()
    try:
        messages.heard = seen(connection, settings.database)
        messages.digests = last_digests(connection, settings.database, _DIGESTS)
    except (ReadingError, StreamyError) as error:
        messages.why.append(str(error))
    return messages
