"""A new database that begins like a live one: the beginning of its log, up to a moment.

Restore does the same from a backup; here the records come from Kafka, and what was trimmed from the
backup that the log was trimmed behind.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Mapping

from streamydb.backup.copy import Progress, Subject, config_of, state_at
from streamydb.backup.folder import BackupFolder
from streamydb.backup.kafka import BackupLog, require_same_end
from streamydb.backup.manifest import BackupError, BackupManifest
from streamydb.backup.pieces import LogSource, Piece
from streamydb.backup.replay import EVERYTHING
from streamydb.backup.restore import committed_until, shown, times_of
from streamydb.backup.state import State, StateDescription
from streamydb.kafka.reader import Span
from streamydb.local.module_folder import FolderModules
from streamydb.records.rulings import Rulings


class LiveLog:
    """A log in Kafka, with what was trimmed from it, as a source.

    Attributes:
        manifest: describes it as if it were a backup; seq and time of its end are not known.
    """

    def __init__(
        self,
        subject: Subject,
        log: BackupLog,
        spans: Mapping[int, Span],
        trimmed: BackupFolder | None,
    ) -> None:
        """Take the log as far as it goes now.
        Raises BackupError: records were trimmed, and ``trimmed`` is no backup of this log.
        """
        self._log, self._spans, self._trimmed = log, spans, trimmed
        self.manifest = subject.manifest({number: span.high for number, span in spans.items()})
        places = [subject.procedures]
        if trimmed is not None:
            manifest = trimmed.manifest()
            if manifest.log != subject.log:
                raise BackupError(f"{trimmed.folder} is a backup of another log")
            places.append(trimmed.procedures)
        elif any(span.low for span in spans.values()):
            raise BackupError(
                f"the log of {subject.database} was trimmed: name the backup that it was trimmed "
                "behind (--backup FOLDER)"
            )
        self.modules = FolderModules(places)

    def rulings(self) -> Rulings:
        return self._log.rulings()

    def pieces(self, partition: int, start: int, end: int) -> Iterator[Piece]:
        low = min(self._spans[partition].low, end)
        if self._trimmed is not None and start < low:
            yield from self._trimmed.pieces(partition, start, low)
        yield from self._log.pieces(partition, max(start, low), end)

    def state_before(self, seq: int) -> State | None:
        """The newest state of the backup that is at or before a seq."""
        if self._trimmed is None:
            return None
        return self._trimmed.newest_state(self._trimmed.manifest(), seq)


def live(subject: Subject, trimmed: BackupFolder | None) -> LiveLog:
    """The log of a database as it is now; ``trimmed``: has what the log does not have any more.
    Raises BackupError: records were trimmed, and ``trimmed`` is no backup of this log, or the log
    has lost its end since.
    """
    log = BackupLog(subject.connection, subject.database)
    spans = log.spans()
    live_log = LiveLog(subject, log, spans, trimmed)
    if trimmed is not None:
        require_same_end(trimmed, log, spans)
    return live_log


def seq_until(log: LogSource, manifest: BackupManifest, at: dt.datetime) -> int:
    """The last seq of a live log whose commit timestamp is not after a time.
    Raises BackupError: the log has not passed that time, so more may yet be committed up to it.
    """
    limit = math.floor(at.timestamp() * 1000)
    timed = times_of(log, manifest)
    last = max((state.effective for state in timed.states.values()), default=0)
    passed = min(timed.order.watermark() - 1, last)
    if limit > passed:
        raise BackupError(
            f"the log of {manifest.database} has come to {shown(passed)}, and {at} is later: more "
            "may be committed up to then. Name an earlier time, or a seq"
        )
    return committed_until(timed, limit)


def moment_at(log: LiveLog, seq: int | None, progress: Progress) -> StateDescription:
    """Describe the state right after a seq (None: the newest), executing the log up to there.
    Raises BackupError: the log ends before that seq. Raises ModuleMissing: the code of a stored
    procedure is not there.
    """
    manifest = log.manifest
    records = sum(manifest.ends.values())
    if seq is not None and seq > records:
        raise BackupError(
            f"the log of {manifest.database} has {records} records, so there is no seq {seq} yet"
        )
    until = EVERYTHING if seq is None else seq
    base = log.state_before(until)
    config, ends = config_of(manifest), manifest.ends
    with state_at(log, config, base, until, ends, log.modules, progress) as (state, _):
        return state.about
