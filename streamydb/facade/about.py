"""The facts about a database that a facade tells and does not work with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from streamydb.errors import StreamyError
from streamydb.facade.life.evidence import Evidence
from streamydb.facade.life.kafka import collect
from streamydb.kafka.digests import ShardDigests, last_digests
from streamydb.kafka.presence import PresentPipeline, seen
from streamydb.local.folder import DatabaseFolder, PipelineStatus
from streamydb.records import Result
from streamydb.settings import Settings

__all__ = ["About", "Told", "about_database"]

_DIGESTS = 20


class Told(msgspec.Struct, kw_only=True):
    """The messages of pipelines to each other in Kafka; None: they cannot be read now."""

    heard: list[PresentPipeline] | None = None
    digests: list[ShardDigests] | None = None
    why: list[str] = []


def _nothing() -> dict[str, PipelineStatus]:
    return {}


@dataclass(frozen=True, slots=True)
class About:
    """The facts.

    Attributes:
        database: its name.
        here: what the pipelines say of themselves that were started on this machine, by name.
        told: asks Kafka; takes its time. None: there is no Kafka.
        evidence: what Kafka has of a transaction with a verdict; takes its time.
    """

    database: str = ""
    here: Callable[[], Mapping[str, PipelineStatus]] = _nothing
    told: Callable[[], Told] | None = None
    evidence: Callable[[Result], Evidence] | None = None


def about_database(settings: Settings) -> About:
    """Return the facts about a database on Kafka."""
    place = DatabaseFolder(settings.home, settings.database)

    def here() -> dict[str, PipelineStatus]:
        found = {name: place.status(name) for name in ("", *place.others())}
        return {name: said for name, said in found.items() if said.updated_ms is not None}

    def evidence(result: Result) -> Evidence:
        return collect(settings.client_config(), settings.database, result)

    return About(settings.database, here, lambda: _told(settings), evidence)


def _told(settings: Settings) -> Told:
    """Read the ends of both topics; say why, if one cannot be read."""
    from streamydb.kafka.reader import ReadingError

    connection, told = settings.client_config(), Told()
    try:
        told.heard = seen(connection, settings.database)
        told.digests = last_digests(connection, settings.database, _DIGESTS)
    except (ReadingError, StreamyError) as error:
        told.why.append(str(error))
    return told
