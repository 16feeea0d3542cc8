"""What `backup`, `restore`, `trim` and `resize` share: which database, its settings, progress."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from streamydb.cli.common import fail
from streamydb.cli.phases import bar

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamydb.backup.taking import Subject
    from streamydb.cli.phases import Phase
    from streamydb.cli.target import Target

__all__ = ["noting", "resolved_seq", "size_of", "subject_of"]


def subject_of(target: Target) -> Subject:
    """The database of a command, with the settings of its checkpoint if that is here.

    Raises:
        TopicsError: Kafka does not answer, or there is no such log.
        ConfigurationError: the checkpoint's record cannot be read.
    """
    from streamydb import topics
    from streamydb.backup.taking import Subject
    from streamydb.pipeline.config import read_record

    settings, record = target.settings, target.place.record()
    names = topics.TopicNames(target.database)
    log = topics.describe(target.connection, target.database).get(names.transactions)
    if log is None:
        fail(
            f"there is no database {target.database} at {target.bootstrap} (no topic "
            f"{names.transactions}): name it with --database and --bootstrap"
        )
    known = read_record(target.place.checkpoint)
    created = record.partitions if record is not None else log.partitions
    return Subject(
        connection=target.connection,
        database=target.database,
        log=topics.log_id(target.connection, target.database),
        shards=settings.shards,
        grouping=settings.grouping,
        partitions=created if known is None else known.partitions,
        id_window=settings.id_window if known is None else known.id_window,
        digest_interval=settings.digest_interval if known is None else known.digest_interval,
        constraints=settings.constraints if known is None else known.constraints,
        procedures=target.procedures,
    )


def resolved_seq(target: Target) -> int:
    """The last seq whose outputs are all written.

    Raises:
        ReadingError: Kafka does not answer.
    """
    from streamydb.spark.positions import look

    settings = target.settings.model_copy(update={"bootstrap": target.bootstrap})
    return look(settings).seq


def noting(phase: Phase) -> Callable[[str, int, int], None]:
    """Progress that shows up in a phase's line."""

    def note(what: str, done: int, total: int) -> None:
        phase.note(f"{what} {bar(done, total)} {done:,} of {total:,}")

    return note


def size_of(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
