"""Delete the beginning of a log, if a backup keeps it and nobody needs it any more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from streamydb.backup.copy import Progress
from streamydb.backup.folder import BackupFolder
from streamydb.backup.kafka import BackupLog, require_same_end
from streamydb.backup.manifest import BackupError, BackupManifest
from streamydb.backup.needs import Need
from streamydb.backup.state import StateDescription
from streamydb.kafka import TopicNames
from streamydb.kafka.admin import delete_before
from streamydb.kafka.clients import administrator
from streamydb.kafka.reader import Span

_TIMEOUT_S: Final = 60.0


class Cut(NamedTuple):
    """The part of the log that can be deleted.

    Attributes:
        about: the oldest state of the backup: what begins anew, begins there at the earliest.
        deletes: per partition, from the first offset that there is to before which.
    """

    about: StateDescription
    deletes: dict[int, Span]

    @property
    def records(self) -> int:
        return sum(span.high - span.low for span in self.deletes.values())


def cut(folder: BackupFolder, manifest: BackupManifest, log: str, spans: Mapping[int, Span]) -> Cut:
    """Return the place at which the log may be cut: before its oldest state.
    Raises BackupError: the backup is another log's, or has no state.
    """
    must_be_of(folder, manifest, log)
    if not manifest.states:
        raise BackupError(f"{folder.folder} has no state: run `streamydb backup` again")
    about = folder.state(min(manifest.states)).about()
    offsets = about.offsets()
    deletes = {
        number: Span(span.low, max(span.low, offsets.get(number, 0)))
        for number, span in spans.items()
    }
    return Cut(about, {n: span for n, span in deletes.items() if span.high > span.low})


def must_be_of(folder: BackupFolder, manifest: BackupManifest, log: str) -> None:
    """Refuse a backup of another log than that with Kafka's id ``log``."""
    if manifest.log != log:
        raise BackupError(
            f"{folder.folder} is the backup of another log of {manifest.database}: name the one "
            "of this database"
        )


def refusals(cut: Cut, known: Iterable[Need], without: Iterable[str] = ()) -> list[str]:
    """Why the log must not be cut there, one line for each that still needs what would go.

    ``without``: names that do not count: pipelines that are gone for good.
    """
    left, messages = set(without), []
    for need in known:
        if need.name in left:
            continue
        if need.seq is not None and need.seq < cut.about.seq:
            messages.append(
                f"{need.who} is at seq {need.seq}, before the backup's oldest state at seq "
                f"{cut.about.seq}"
            )
        for number, span in cut.deletes.items() if need.offsets is not None else ():
            at = (need.offsets or {}).get(number, 0)
            if at < span.high:
                messages.append(
                    f"{need.who} goes on at offset {at} of partition {number}, before {span.high}"
                )
    return messages


def verify(folder: BackupFolder, wanted: Cut, log: BackupLog, progress: Progress) -> None:
    """Read all that would be deleted from the backup, and every state in it; compare its end with
    the log.
    Raises BackupError: something is missing or damaged, or the log has lost its end since.
    """
    for seq in folder.manifest().states:
        folder.state(seq).require_whole()
    total = sum(span.high for span in wanted.deletes.values())
    count = 0
    for number, span in wanted.deletes.items():
        for piece in folder.pieces(number, 0, span.high):
            progress("reading the backup", count + piece.end, total)
        count += span.high
    require_same_end(folder, log, log.spans())


def trim(connection: Mapping[str, str], database: str, wanted: Cut) -> dict[int, int]:
    """Delete what is to go; return each partition's first offset that is left."""
    topic = TopicNames(database).transactions
    offsets = {number: span.high for number, span in wanted.deletes.items()}
    admin = administrator(connection)
    return delete_before(admin, topic, offsets, verb="trim", timeout_s=_TIMEOUT_S)
