"""Make a backup of a running database, or continue one.

The log is append-only and decides everything, so a copy of it up to some offsets is consistent
whatever happens meanwhile. It is copied in files of some megabytes; a copy that was interrupted
goes on after the last file that is whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import lmdb
import msgspec

from streamydb.backup.folder import BackupFolder
from streamydb.backup.kafka import BackupLog, require_same_end, told_digests
from streamydb.backup.manifest import FORMAT, BackupError, BackupManifest
from streamydb.backup.pieces import LogSource, joined
from streamydb.backup.replay import EVERYTHING, LogReplay, StateAfter, replay
from streamydb.backup.state import State
from streamydb.frames.shards import ShardConfig
from streamydb.kafka.reader import Span
from streamydb.local.file_lock import scratch, write_whole
from streamydb.local.module_folder import FolderModules
from streamydb.procedures.modules import Modules

Progress = Callable[[str, int, int], None]  # is told what is done, and how much of how much
_SAME: Final = ("database", "log", "partitions", "id_window", "digest_interval")


@dataclass(frozen=True, slots=True)
class Subject:
    """The database of a backup.

    Attributes:
        log: Kafka's id of its log.
        grouping: planner or single.
        partitions: of the log when it was created.
        id_window: for how many seqs an id is remembered.
        digest_interval: transactions from digest to digest.
        procedures: the folder of its modules.
    """

    connection: Mapping[str, str]
    database: str
    log: str
    shards: int
    grouping: str
    partitions: int
    id_window: int
    digest_interval: int
    procedures: Path = field(default_factory=Path)

    def manifest(self, ends: Mapping[int, int]) -> BackupManifest:
        """Describe a backup of the log up to these offsets, without any state."""
        facts = {name: getattr(self, name) for name in (*_SAME, "shards", "grouping")}
        return BackupManifest(format=FORMAT, seq=0, ts_ms=0, ends=dict(ends), states=[], **facts)


class BackupReport(NamedTuple):
    """The contents of a backup after a run.

    Attributes:
        seq: the last transaction that can be restored.
        ts_ms: its commit timestamp.
        records: of the log that were copied by this call.
        keys: after that transaction.
        digest: of the state after it.
        state: the seq of the newest state.
        verified: how many digests of the pipelines the copy was held against.
    """

    seq: int
    ts_ms: int
    records: int
    keys: int
    digest: str
    state: int
    verified: int


def take(
    folder: BackupFolder,
    subject: Subject,
    resolved: int,
    keep: int,
    progress: Progress,
    *,
    compare: bool = True,
) -> BackupReport:
    """Copy what has come to the log, and make a state of it.

    ``folder``: a backup of the same database, or nothing yet. ``resolved``: the last seq whose
    outputs are all written: the state to make. ``keep``: how many states to keep, the newest.
    ``compare``: hold the digests of the copy against those of the pipelines.
    Raises BackupError: the folder is another database's or damaged, or another backup is being
    taken in it; the log lacks records, or has lost its end since; the copy does not give what the
    pipelines have computed.
    """
    with folder.alone():
        log = BackupLog(subject.connection, subject.database)
        spans = log.spans()
        manifest = _begin(folder, subject, spans)
        require_same_end(folder, log, spans)
        if resolved < max(manifest.states, default=0):
            raise BackupError(
                f"{folder.folder} has a state at seq {max(manifest.states)}, and "
                f"{subject.database} is resolved up to {resolved}: wait until the pipeline is there"
            )
        copied = _copy(folder, log, spans, progress)
        folder.write_rulings(log.rulings())
        _copy_procedures(subject.procedures, folder.procedures)
        segments = {number: folder.segments(number) for number in spans}
        log_ends = {number: known[-1].end if known else 0 for number, known in segments.items()}
        base = folder.newest_state(manifest, resolved)
        config = config_of(manifest)
        rest = log_ends, FolderModules([folder.procedures]), progress
        with state_at(folder, config, base, resolved, *rest) as (state, digests):
            if base is None or base.about.seq < resolved:
                folder.state(resolved).write(owned(state, subject))
        kept = folder.state(resolved).read()
        with state_at(folder, config, kept, EVERYTHING, *rest) as (newest, more):
            last = newest.about
        verified = _compare(subject, digests | more, resolved) if compare else 0
        states = sorted({*manifest.states, resolved})[-keep:]
        finished = msgspec.structs.replace(
            manifest,
            seq=last.seq,
            ts_ms=last.ts_ms,
            ends=log_ends,
            states=states,
            shards=subject.shards,
            grouping=subject.grouping,
        )
        folder.write_manifest(finished)
        folder.drop_states(states)
        return BackupReport(
            last.seq, last.ts_ms, copied, last.keys, last.digest, resolved, verified
        )


def config_of(manifest: BackupManifest) -> ShardConfig:
    return ShardConfig(
        manifest.database,
        "replay",
        manifest.shards,
        manifest.partitions,
        manifest.id_window,
        manifest.grouping,
        digest_interval=manifest.digest_interval,
    )


def owned(state: State, subject: Subject) -> State:
    about = msgspec.structs.replace(state.about, database=subject.database, log=subject.log)
    return State(about, state.values, state.ids, state.verdicts)


@contextmanager
def state_at(
    source: LogSource,
    config: ShardConfig,
    base: State | None,
    seq: int,
    log_ends: Mapping[int, int],
    modules: Modules,
    progress: Progress,
) -> Iterator[tuple[State, dict[int, StateAfter]]]:
    """Execute a log up to a seq: the state there, within the body, and the digests on the way.

    ``base``: the state to begin with. ``seq``: where to stop; `EVERYTHING`: where the log stops.
    ``log_ends``: per partition, where to stop reading.
    Raises BackupError: the log ends before that seq. Raises ModuleMissing: a stored procedure's
    code is not there.
    """
    if base is not None and base.about.seq == seq:
        yield base, {}
        return
    goal = seq if seq != EVERYTHING else 0
    with (
        scratch() as work,
        _told_of_room(work),
        closing(LogReplay(config, work, base, seq, modules, source.rulings())) as run,
    ):
        replay(run, source, log_ends, seq, lambda at: progress("executing the log", at, goal or at))
        yield run.state(config.database, base.about.log if base else ""), run.digests


@contextmanager
def _told_of_room(work: Path) -> Iterator[None]:
    """Say where the values cannot be written, which LMDB does not."""
    try:
        yield
    except lmdb.Error as fault:
        raise BackupError(
            f"{work.parent} cannot take the values that the log leads to ({fault}): make room "
            "there, or name another folder for temporary files (TMPDIR), and run the command again"
        ) from fault


def _begin(folder: BackupFolder, subject: Subject, spans: Mapping[int, Span]) -> BackupManifest:
    """Return the manifest of the folder; a new one begins with nothing at seq 0."""
    if folder.exists():
        manifest = folder.manifest()
        for name in _SAME:
            old, new = getattr(manifest, name), getattr(subject, name)
            if old != new:
                raise BackupError(
                    f"{folder.folder} is a backup of a database with {name} {old}, this one has "
                    f"{new}: name another folder"
                )
        return manifest
    trimmed = {number: span.low for number, span in spans.items() if span.low}
    if trimmed:
        raise BackupError(
            f"the log of {subject.database} was trimmed (it begins at {_places(trimmed)}), so a "
            "new backup could not be restored: go on with the one that it was trimmed behind"
        )
    manifest = subject.manifest({})
    folder.write_manifest(manifest)
    return manifest


def _places(offsets: Mapping[int, int]) -> str:
    return ", ".join(f"{number}/{offset}" for number, offset in sorted(offsets.items()))


def _copy(
    folder: BackupFolder, log: BackupLog, spans: Mapping[int, Span], progress: Progress
) -> int:
    starts = {}
    for number in spans:
        segments = folder.segments(number)
        starts[number] = segments[-1].end if segments else 0
    total, copied = sum(span.high - starts[number] for number, span in spans.items()), 0
    for number, span in spans.items():
        at = starts[number]
        for piece in joined(log.pieces(number, at, span.high)):
            folder.add_segment(piece, at, piece.end)
            copied, at = copied + piece.end - at, piece.end
            progress("copying the log", copied, total)
    return copied


def _copy_procedures(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for path in source.glob("*.py"):
        data = path.read_bytes()
        if not (target / path.name).exists() or (target / path.name).read_bytes() != data:
            write_whole(target / path.name, data)


def _compare(subject: Subject, digests_here: Mapping[int, StateAfter], resolved: int) -> int:
    """Compare the digests of the copy with those of the pipelines; return how many agree.

    A log that lost its end gives seqs again, and digests of the lost transactions are told for
    good. They are older than the transaction that has their seq now. Brokers' clocks may differ, so
    up to what is resolved that is believed only if a pipeline has told the copy's digest, too.
    """
    if not digests_here:
        return 0
    digests = told_digests(
        subject.connection, subject.database, subject.digest_interval, digests_here
    )
    compared = 0
    for seq, (digest, ts_ms) in digests_here.items():
        others = digests.get(seq, {})
        agreeing = sum(other.digest == digest for other in others.values())
        compared += agreeing
        for pipeline, other in others.items():
            lost = other.told_ms < ts_ms and (agreeing or seq > resolved)
            if other.digest != digest and not lost:
                raise BackupError(
                    f"at seq {seq} the copy of the log gives the state {digest}, and pipeline "
                    f"{pipeline} told {other.digest}: one of them is wrong; run `streamydb check`. "
                    "If it finds no difference but faults of ours (code internal), use "
                    "--no-compare"
                )
    return compared
