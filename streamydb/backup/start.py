"""Begin a pipeline with a state instead of the beginning of the log.

The state is copied into the checkpoint folder (`start`), before the query is there; each shard
takes its part of it in its first micro-batch, and the log is read from where the state ends.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

import msgspec

from streamydb.backup.folder import BackupFolder, StateFolder
from streamydb.backup.manifest import BackupError
from streamydb.backup.state import StateDescription, start_blobs
from streamydb.frames.blobs import BlobStore
from streamydb.frames.shards import ShardConfig

START: Final = "start"  # the folder of the state in a checkpoint folder

_EARLIEST: Final = -2  # Spark's name of the first offset that there is


class Beginning(NamedTuple):
    """The beginning of a pipeline: the state's folder and seq, where each partition goes on."""

    folder: Path
    seq: int
    offsets: tuple[int, ...]

    def starting_offsets(self, topic: str) -> str:
        """Spark's option startingOffsets."""
        offsets = {str(number): offset for number, offset in enumerate(self.offsets)}
        return msgspec.json.encode({topic: offsets}).decode()


def begin(
    checkpoint: Path, state: Path | None, config: ShardConfig, log: str, beginnings: Sequence[int]
) -> Beginning | None:
    """Return the beginning of a checkpoint; None: the beginning of the log, or it has begun
    already.

    ``state``: a state or a backup to begin with; None: whatever is in the checkpoint folder. Until
    the checkpoint has begun, it replaces a state that was given before. ``beginnings``: the first
    offset of each partition of the log.
    Raises BackupError: the state is damaged or another database's; the log was trimmed behind what
    is needed.
    """
    start = checkpoint / START
    has_begun = (checkpoint / "query").exists()
    if state is not None and has_begun and not start.exists():
        raise BackupError(
            f"the checkpoint {checkpoint} has begun without a state: leave --from-state out, "
            "or name a new checkpoint folder"
        )
    if state is not None and not has_begun:
        source = find_state(state)
        _refuse(StateFolder(source).about(), source, config, log)
        _copy(source, start)
    about = StateFolder(start).about() if start.exists() else None
    if not has_begun:
        if about is not None:
            _refuse(about, start, config, log)
            StateFolder(start).require_whole()
        _refuse_trimmed(about, beginnings, config.database)
    if about is None:
        return None
    known = about.offsets()
    offsets = tuple(known.get(number, _EARLIEST) for number in range(len(beginnings)))
    return Beginning(start, about.seq, offsets)


def find_state(folder: Path) -> Path:
    """The folder of a state: itself, or of the newest one of a backup.
    Raises BackupError: there is none.
    """
    backup = BackupFolder(folder)
    if not backup.exists():
        StateFolder(folder).about()
        return folder
    states = backup.manifest().states
    if not states:
        raise BackupError(f"{folder} has no state: run `streamydb backup` again")
    return backup.state(max(states)).folder


class Starter:
    """Puts a shard's part of a state into its store; can be sent to executors.

    Args:
        folder: the state; None: nothing is put.
    """

    _begun: ClassVar[set[tuple[str, int]]] = set()
    """Shards whose store had something when this process looked."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def put(self, blobs: BlobStore, config: ShardConfig, shard: int) -> None:
        """Fill the store of a shard that has nothing yet."""
        if self._folder is None or (config.incarnation, shard) in self._begun:
            return
        if blobs.get("meta") is not None:
            self._begun.add((config.incarnation, shard))
            return
        for name, data in start_blobs(StateFolder(self._folder).read(), config, shard):
            blobs.put(name, data)


def _copy(source: Path, target: Path) -> None:
    """Copy a folder in the place of another one, so that it is there as a whole or not at all."""
    draft = target.with_name(f"{target.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    shutil.copytree(source, draft)
    shutil.rmtree(target, ignore_errors=True)
    draft.rename(target)


def _refuse(about: StateDescription, start: Path, config: ShardConfig, log: str) -> None:
    if about.log != log:
        raise BackupError(
            f"the state in {start} is of another log than that of {config.database}: name one of "
            "a backup of this database, or leave it out"
        )
    about.must_fit(config, f"the state in {start}")
    if config.grouping != "planner":
        raise BackupError("grouping=single begins with the log; leave the state out")


def _refuse_trimmed(
    about: StateDescription | None, beginnings: Sequence[int], database: str
) -> None:
    offsets = {} if about is None else about.offsets()
    for partition, low in enumerate(beginnings):
        needed = offsets.get(partition, 0)
        if low > needed:
            raise BackupError(
                f"the log of {database} was trimmed: partition {partition} begins at offset {low}, "
                f"and this pipeline needs it from {needed} on. Begin with a newer state: "
                "--from-state with the folder of the backup that the log was trimmed behind"
            )
