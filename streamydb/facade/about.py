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
    place = DatabaseFolder(settings.home, settings.database)

    def here() -> dict[str, PipelineStatus]:
        found = {name: place.status(name) for name in ("", *place.others())}
        return {name: said for name, said in found.items() if said.updated_ms is not None}

    def evidence(result: Result) -> Evidence:
        return collect(settings.client_config(), settings.database, result)

    return About(settings.database, here, lambda: _told(settings), evidence)


def _told(settings: Settings) -> PipelineMessages:
    """Read the ends of both topics; say why, if one cannot be read."""
    from streamydb.kafka.reader import ReadingError

    connection, told = settings.client_config(), PipelineMessages()
    try:
        told.heard = seen(connection, settings.database)
        told.digests = last_digests(connection, settings.database, _DIGESTS)
    except (ReadingError, StreamyError) as error:
        told.why.append(str(error))
    return told
