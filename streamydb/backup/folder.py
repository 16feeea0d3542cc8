"""The folder of a backup: its files, each written whole or not at all."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec

from streamydb.backup.manifest import (
    MANIFEST,
    BackupError,
    BackupManifest,
    decode_about,
    decode_manifest,
    encode_json,
)
from streamydb.backup.pieces import Piece, Row, decode_piece, encode_piece, unwrap, wrap
from streamydb.backup.state import FORMAT, Pieces, State, StateDescription, files_of
from streamydb.frames.table import ColumnTable
from streamydb.frames.value_rows import Verdicts, WrittenValues
from streamydb.key_processor.id_rows import DatedIds
from streamydb.local.file_lock import lock_at_once, write_whole
from streamydb.records.begins import Begins
from streamydb.records.rulings import Fault, Rulings

_Rows = TypeVar("_Rows", DatedIds, Verdicts, WrittenValues)

_ABOUT: Final = "state.json"
_RULINGS: Final = "rulings.json"
_RULINGS_FORMAT: Final = 2
_LOCK: Final = "lock"
_SEGMENT: Final = re.compile(r"(\d+)-(\d+)\.seg")


class Segment(NamedTuple):
    """A file of the log: the offsets from `start` to before `end`."""

    start: int
    end: int
    path: Path


class StateFolder:
    """A state on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, state: State) -> None:
        """Write a state; what says that it is there comes last."""
        shutil.rmtree(self.folder, ignore_errors=True)
        names = []
        kinds: dict[str, Iterable[ColumnTable]] = {
            "values": state.values,
            "ids": [state.ids],
            "verdicts": [state.verdicts],
        }
        for kind, tables in kinds.items():
            for number, part in enumerate(files_of(tables)):
                names.append(f"{kind}-{number:05d}.part")
                write_whole(self.folder / names[-1], wrap(part.flatten(), kind=kind))
        about = msgspec.structs.replace(state.about, files=names)
        write_whole(self.folder / _ABOUT, encode_json(about))

    def about(self) -> StateDescription:
        """Return the description of the state.
        Raises BackupError: there is none, or it is of a newer format.
        """
        path = self.folder / _ABOUT
        try:
            return decode_about(path.read_bytes(), str(path), StateDescription, FORMAT)
        except OSError as fault:
            raise BackupError(f"{self.folder} has no state ({fault.strerror})") from None

    def read(self) -> State:
        """Return the state; its values are read, file by file, when somebody iterates over them.
        Raises BackupError: it is missing or damaged, as going through the values may find, too.
        """
        about = self.about()
        ids = list(self._tables(about, "ids", DatedIds))
        verdicts = list(self._tables(about, "verdicts", Verdicts)) or [Verdicts.none()]
        return State(
            about,
            Pieces(lambda: self._tables(about, "values", WrittenValues)),
            DatedIds.concat(ids or [DatedIds.none()]),
            Verdicts.concat(verdicts),
        )

    def require_whole(self) -> None:
        """Check every file."""
        for name in self.about().files:
            unwrap(_read(self.folder / name), str(self.folder / name))

    def _tables(self, about: StateDescription, kind: str, table: type[_Rows]) -> Iterator[_Rows]:
        for name in about.files:
            if name.startswith(f"{kind}-"):
                path = self.folder / name
                yield table.unflatten(unwrap(_read(path), str(path))[1])


class _Rulings(msgspec.Struct):
    """The rulings on records of the log, and where rules begin."""

    rulings: list[Fault] = []
    begins: Begins = Begins()
    format: int = _RULINGS_FORMAT


class BackupFolder:
    """A backup on disk; the log in it is a `LogSource`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.procedures = folder / "procedures"

    def rulings(self) -> Rulings:
        """As `LogSource.rulings`.
        Raises BackupError: the file is missing or damaged, or of another format.
        """
        path = self.folder / _RULINGS
        stored = decode_about(_read(path), str(path), _Rulings, _RULINGS_FORMAT)
        return Rulings(stored.rulings, stored.begins)

    def write_rulings(self, rulings: Rulings) -> None:
        write_whole(self.folder / _RULINGS, encode_json(_Rulings(rulings.faults, rulings.begins)))

    def manifest(self) -> BackupManifest:
        """Return the description of the backup.
        Raises BackupError: there is none, or it is of a newer format.
        """
        path = self.folder / MANIFEST
        try:
            return decode_manifest(path.read_bytes(), str(path))
        except FileNotFoundError:
            raise BackupError(
                f"{self.folder} is no backup (it has no {MANIFEST}): name a folder that "
                "`streamydb backup` has finished"
            ) from None
        except OSError as fault:
            raise BackupError(f"{path} cannot be read: {fault.strerror}") from None

    def exists(self) -> bool:
        return (self.folder / MANIFEST).exists()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep a second backup off while the body runs: both would copy the same records.
        Raises BackupError: one is being taken, or the folder has something else.
        """
        if not self.exists() and self._has_other_files():
            raise BackupError(f"{self.folder} is not empty and no backup: name another folder")
        runs = f"another `streamydb backup` writes to {self.folder}: wait until it has ended"
        with lock_at_once(self.folder / _LOCK, BackupError(runs)):
            yield

    def _has_other_files(self) -> bool:
        """Return True if there is more than the first files of a backup, half written."""
        files = self.folder.iterdir() if self.folder.exists() else ()
        return any(path.name != _LOCK and not path.match(f"{MANIFEST}.*.draft") for path in files)

    def write_manifest(self, manifest: BackupManifest) -> None:
        write_whole(self.folder / MANIFEST, encode_json(manifest))

    def segments(self, partition: int) -> list[Segment]:
        """The files of a partition's log, in order.
        Raises BackupError: one is missing between two others.
        """
        segments = []
        for path in (self.folder / "log" / str(partition)).glob("*.seg"):
            name = _SEGMENT.fullmatch(path.name)
            if name is not None:
                segments.append(Segment(int(name[1]), int(name[2]), path))
        segments.sort()
        for before, after in pairwise(segments):
            if before.end != after.start:
                raise BackupError(
                    f"{self.folder}: the records {before.end} to {after.start} of partition "
                    f"{partition} are missing; take the files from another copy of the backup"
                )
        return segments

    def add_segment(self, piece: Piece, start: int, end: int) -> None:
        """Keep a piece as a file; the log has no other records from ``start`` to before ``end``."""
        path = self.folder / "log" / str(piece.partition) / f"{start:020d}-{end:020d}.seg"
        write_whole(path, encode_piece(piece, end))

    def pieces(self, partition: int, start: int, end: int) -> Iterator[Piece]:
        """The records of a partition with offsets from ``start`` to before ``end``, in order.
        Raises BackupError: some of them are not there, or a file is damaged.
        """
        at = start
        for segment in self.segments(partition):
            if segment.end <= at or segment.start >= end:
                continue
            if segment.start > at:
                break
            piece = decode_piece(_read(segment.path), str(segment.path)).between(start, end)
            at = segment.end
            if len(piece.offsets):
                yield piece
        if at < end:
            raise BackupError(
                f"{self.folder}: the records {at} to {end} of partition {partition} are not in it"
            )

    def last_row(self, partition: int) -> Row | None:
        """The last record of a partition; None if there is none."""
        segments = self.segments(partition)
        if not segments:
            return None
        path = segments[-1].path
        return decode_piece(_read(path), str(path)).last

    def state(self, seq: int) -> StateFolder:
        return StateFolder(self.folder / "states" / f"{seq:020d}")

    def newest_state(self, manifest: BackupManifest, at: int) -> State | None:
        """The newest state that is at or before a seq; None if there is none."""
        fitting = [seq for seq in manifest.states if seq <= at]
        return self.state(max(fitting)).read() if fitting else None

    def drop_states(self, keep: Collection[int]) -> None:
        for path in (self.folder / "states").glob("*"):
            if not (path.name.isdigit() and int(path.name) in keep):
                shutil.rmtree(path, ignore_errors=True)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as fault:
        raise BackupError(
            f"{path} cannot be read ({fault.strerror}); take it from another copy of the backup"
        ) from None
