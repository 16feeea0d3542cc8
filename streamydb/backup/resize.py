"""Give a stopped database another number of shards: divide its state anew.

The state at the last resolved seq becomes what a new checkpoint begins with; nothing is written
again, and seqs, versions and remembered ids go on. The old checkpoint is kept beside the new one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from streamydb.backup.copy import Progress, Subject, config_of, owned, state_at
from streamydb.backup.folder import BackupFolder, StateFolder
from streamydb.backup.kafka import BackupLog, require_same_end
from streamydb.backup.manifest import BackupError
from streamydb.backup.start import START
from streamydb.backup.state import State, StateDescription
from streamydb.kafka.reader import Span
from streamydb.local.file_lock import lock_at_once
from streamydb.local.module_folder import FolderModules


@contextmanager
def standing_still(checkpoint: Path) -> Iterator[None]:
    """Hold the checkpoint, so that no pipeline runs on it meanwhile."""
    runs = (
        f"a pipeline runs on the checkpoint {checkpoint}: stop it first (`streamydb down`); or "
        "another `resize` or `rebuild` has it"
    )
    with lock_at_once(checkpoint / "lease", BackupError(runs)):
        yield


def divide(
    subject: Subject,
    checkpoint: Path,
    backup: BackupFolder | None,
    resolved: int,
    target: StateFolder,
    progress: Progress,
) -> StateDescription:
    """Write the state of a database at its last resolved seq; return its description.

    ``checkpoint``: of its pipeline; a state that it began with is a start. ``backup``: with a state
    to begin with, if the log was trimmed or is long. ``resolved``: the last resolved seq.
    Raises BackupError: the log was trimmed, and there is no state to begin with; or it has lost its
    end since the backup was taken.
    """
    log = BackupLog(subject.connection, subject.database)
    spans = log.spans()
    base = _base(subject, checkpoint, backup, resolved, spans)
    if backup is not None:
        require_same_end(backup, log, spans)
    log_ends = {number: span.high for number, span in spans.items()}
    modules = FolderModules([subject.procedures])
    config = config_of(subject.manifest(log_ends))
    with state_at(log, config, base, resolved, log_ends, modules, progress) as (state, _):
        if not _has_rest(spans, state.about):
            raise BackupError(
                f"the log of {subject.database} was trimmed, and nothing at hand is at seq "
                f"{resolved} or just before: name the backup that it was trimmed behind "
                "(--from-state)"
            )
        target.write(owned(state, subject))
        return state.about


def _base(
    subject: Subject,
    checkpoint: Path,
    backup: BackupFolder | None,
    resolved: int,
    spans: Mapping[int, Span],
) -> State | None:
    """The newest state that is at hand, not after the seq, of which the log has what follows."""
    states: list[tuple[StateDescription, StateFolder]] = []
    folders = [StateFolder(checkpoint / START)] if (checkpoint / START).exists() else []
    if backup is not None:
        folders += [backup.state(seq) for seq in backup.manifest().states]
    for folder in folders:
        about = folder.about()
        if about.log != subject.log:
            raise BackupError(f"{folder.folder} is of another log than that of {subject.database}")
        if about.seq <= resolved and _has_rest(spans, about):
            states.append((about, folder))
    if not states:
        return None
    return max(states, key=lambda each: each[0].seq)[1].read()


def _has_rest(spans: Mapping[int, Span], about: StateDescription) -> bool:
    """Return True if the log has all that comes after a state."""
    offsets = about.offsets()
    return all(offsets.get(number, 0) >= span.low for number, span in spans.items())


def put_aside(checkpoint: Path) -> Path:
    """Rename a checkpoint folder, so that a new one can take its place; return its new place."""
    for number in range(1, 1_000):
        aside = checkpoint.with_name(f"{checkpoint.name}.before-{number}")
        if not aside.exists():
            checkpoint.rename(aside)
            return aside
    raise BackupError(f"there are too many old checkpoints beside {checkpoint}: delete some")
