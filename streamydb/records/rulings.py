"""Rulings: the verdicts on transactions on which our own code raised (pure).

An execution that meets a fault which nobody has ruled on goes through the rest of its batch, so as
to find all of them, and then raises `UnruledFaults`: nothing is written but outputs of what came
before the first fault, which are written again, to the byte. The driver repeats the batch. A fault
that comes again is ruled on (`Suspects`); one that does not, was none. The repeated batch takes the
rulings as given: what they name is `aborted: internal`, unexecuted.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Final, NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from streamydb.errors import InvariantViolation, ModuleMissing, RecordError, StreamyError
from streamydb.records.begins import EVERYWHERE, Begins
from streamydb.records.formats import FORMAT, decoded, later_format, record_decoder

LogPosition = tuple[int, int]
"""A record of the log: partition and offset."""

STOPPING: Final = (MemoryError, OSError, ModuleMissing, InvariantViolation)
"""Errors that say nothing about the transaction: they stop the batch, which is then repeated."""


class Fault(NamedTuple):
    """An internal fault on one record of the log; the fields are those of `Ruling`."""

    partition: int
    offset: int
    error: str
    named: bool = True
    counted: bool = True
    shown: bool = True


class Rulings:
    """The rulings that an execution takes as given; never changes, and can be sent to executors.

    Attributes:
        begins: from where on the rules hold that releases have added; no more than the rulings
            can this be told from the log alone.
    """

    def __init__(self, faults: Iterable[Fault] = (), begins: Begins = EVERYWHERE) -> None:
        self.begins = begins
        self._known: dict[LogPosition, Fault] = {}
        for fault in faults:
            self._known.setdefault((fault.partition, fault.offset), fault)
        self._offsets = np.sort(np.array([offset for _, offset in self._known], np.int64))

    def __len__(self) -> int:
        return len(self._known)

    @property
    def faults(self) -> list[Fault]:
        return [self._known[position] for position in sorted(self._known)]

    def get(self, position: LogPosition) -> Fault | None:
        return self._known.get(position)

    def rows(
        self, partitions: npt.NDArray[np.int32], offsets: npt.NDArray[np.int64]
    ) -> dict[int, Fault]:
        """The rulings on some records, by their position among them; shapes (n,)."""
        if not len(self._known) or not len(offsets):
            return {}
        at = np.searchsorted(self._offsets, offsets)
        present = self._offsets[np.minimum(at, len(self._offsets) - 1)] == offsets
        faults = {}
        for row in np.flatnonzero(present).tolist():
            fault = self._known.get((int(partitions[row]), int(offsets[row])))
            if fault is not None:
                faults[row] = fault
        return faults


NO_RULINGS: Final = Rulings()
"""Where nothing was ruled."""


class UnruledFaults(StreamyError):  # noqa: N818 - what there is, as with the other stops
    """Our own code failed on records without a ruling; the message carries ``faults`` to the
    driver.
    """

    def __init__(self, faults: list[Fault]) -> None:
        first = faults[0]
        super().__init__(
            f"our own code failed on {len(faults)} transactions, the first at partition "
            f"{first.partition}, offset {first.offset} ({first.error}) [faults:{_packed(faults)}]"
        )
        self.faults = faults


class TooLate(InvariantViolation):
    """Our own code failed on a transaction whose result is known: there is nothing to rule."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(
            f"this release fails ({fault.error}) on the record at partition {fault.partition}, "
            f"offset {fault.offset}, whose result is known already: run the release that executed "
            "it (docs/operations.md, 'InternalAborts')"
        )


class ReadBefore(InvariantViolation):
    """A record was ruled to be unreadable after this pipeline had read it."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(
            f"this pipeline read the record at partition {fault.partition}, offset {fault.offset}, "
            "before the one that led ruled that it cannot be read: start it with a new checkpoint "
            "folder, so that it reads the ruling first"
        )


def require_ruled(faults: list[Fault], *, executed: bool = False) -> None:
    """Stop if there are faults without a ruling.
    ``faults``: what our own code failed on, rulings not counted. ``executed``: another pipeline, or
    an earlier life of this one, has executed these transactions, so the verdicts are known and are
    not ours to give.
    Raises UnruledFaults: there are some, and a ruling can be made; TooLate: there are some, and the
    verdicts are known.
    """
    if not faults:
        return
    if executed:
        raise TooLate(faults[0])
    raise UnruledFaults(faults)


def _packed(faults: Iterable[Fault]) -> str:
    """Faults as text: offsets by their distances, so that a run of thousands is short."""
    groups = []
    for (*kind, partition), some in groupby(sorted(faults, key=_kind), key=_kind_of):
        offsets = np.array([fault.offset for fault in some], np.int64)
        distances = np.diff(offsets, prepend=0).tolist()
        groups.append((*kind, partition, distances))
    return base64.b64encode(zlib.compress(msgspec.msgpack.encode(groups))).decode("ascii")


def _kind_of(fault: Fault) -> tuple[str, bool, bool, bool, int]:
    return fault.error, fault.named, fault.counted, fault.shown, fault.partition


def _kind(fault: Fault) -> tuple[str, bool, bool, bool, int, int]:
    return *_kind_of(fault), fault.offset


_PACKED: Final = re.compile(r"UnruledFaults: .*\[faults:([A-Za-z0-9+/=]+)\]")
_groups = msgspec.msgpack.Decoder(list[tuple[str, bool, bool, bool, int, list[int]]]).decode


def faults_in(messages: Iterable[str]) -> list[Fault]:
    """The faults that the messages of a failure name; none: it failed for another reason."""
    for message in messages:
        match = _PACKED.search(message)
        if match:
            groups = _groups(zlib.decompress(base64.b64decode(match[1])))
            return [
                Fault(partition, offset, error, named, counted, shown)
                for error, named, counted, shown, partition, distances in groups
                for offset in np.cumsum(distances).tolist()
            ]
    return []


def require_unread(fault: Fault) -> None:
    """Check a ruling on a record that was read.
    Raises ReadBefore: it says that the record cannot be read.
    """
    if not fault.named:
        raise ReadBefore(fault)


class Suspects:
    """Tells a fault that comes again, and is ruled on, from one that does not."""

    def __init__(self) -> None:
        self._seen: set[Fault] = set()

    def confirm(self, faults: Iterable[Fault]) -> list[Fault]:
        """Those of ``faults`` that the attempt before this one met, too; the others are noted."""
        faults_met = sorted(set(faults), key=_kind)
        confirmed = [fault for fault in faults_met if fault in self._seen]
        self._seen = set(faults_met).difference(confirmed)
        return confirmed


class Book:
    """The contents of a topic of rulings, record by record.

    Attributes:
        epoch: of the last fence.
        adopted: the faults that dead letters or a backup tell of are among them.
    """

    def __init__(self, log: str, begins: Begins = EVERYWHERE) -> None:
        """Take in what is said of the log with this id; ``begins``: where rules begin in it."""
        self.epoch = 0
        self.adopted = False
        self._log, self._begins = log, begins
        self._known: dict[LogPosition, Fault] = {}

    def __len__(self) -> int:
        return len(self._known)

    def take(self, value: bytes | None) -> None:
        """Take in the next record. The first ruling on a record of the log stands.
        Raises RecordError: a newer release has written it.
        """
        record = decode_ruling(value)
        if record.log != self._log:
            return
        if isinstance(record, Adopted):
            self.adopted = True
        elif isinstance(record, Fence):
            self.epoch = max(self.epoch, record.epoch)
        elif record.epoch == 0 or record.epoch >= self.epoch:
            position = record.partition, record.offset
            self._known.setdefault(position, fault_of(record))

    def rulings(self) -> Rulings:
        return Rulings(self._known.values(), self._begins)


def fault_of(ruling: Ruling) -> Fault:
    return Fault(*(getattr(ruling, name) for name in Fault._fields))


def ruling_of(fault: Fault, log: str, epoch: int = 0) -> Ruling:
    return Ruling(log=log, epoch=epoch, **fault._asdict())


class _RulingFields(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """``log``: Kafka's id of the transactions topic, so that another log's past is not believed."""

    log: str
    format: int = FORMAT


class Ruling(_RulingFields, frozen=True, kw_only=True, tag="ruling"):
    """The record at ``partition`` and ``offset`` of the log is ``aborted: internal``.

    ``error``: the fault's name, as in the dead letter. ``named``: its id could be read, so the
    result has it. ``counted``: its call could be read, so a follow-up has had its turn. ``shown``:
    the dead letter shows its bytes. ``epoch``: of the pipeline that leads and says so; 0: a
    dead letter or a backup says so.
    """

    partition: int
    offset: int
    error: str
    named: bool = True
    counted: bool = True
    shown: bool = True
    epoch: int = 0


class Fence(_RulingFields, frozen=True, kw_only=True, tag="fence"):
    """A pipeline leads from here on: rulings of lower epochs that come later are void."""

    epoch: int
    pipeline: str


class Adopted(_RulingFields, frozen=True, kw_only=True, tag="adopted"):
    """The faults that dead letters or a backup tell of stand before this record as rulings."""


RulingRecord: TypeAlias = Ruling | Fence | Adopted

_decode: Final[Callable[[bytes], RulingRecord]] = record_decoder(RulingRecord, "ruling")


class _AnyRuling(msgspec.Struct):
    """The fields that every record has, whatever release wrote it."""

    log: str
    kind: str


_decode_any = msgspec.json.Decoder(_AnyRuling).decode


def encode_ruling(record: RulingRecord) -> bytes:
    return msgspec.json.encode(record)


def decode_ruling(value: bytes | None) -> RulingRecord:
    """The record in a value. Raises RecordError: it is none, or a newer release has written it."""
    record = _decode(value or b"")
    if record.format != FORMAT:
        raise RecordError(
            f"this ruling has format {record.format}, this release reads {FORMAT}: use the release "
            "that wrote it, or a newer one (docs/upgrading.md)"
        )
    return record


def is_strange_ruling(value: bytes | None) -> bool:
    """Return True if a record that cannot be read is none of any release.

    Who passed over a ruling would give its transaction another verdict.
    """
    data = value or b""
    return later_format(data) is None and decoded(_decode_any, data) is None
