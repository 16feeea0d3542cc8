"""Compare a read model with the topic by digests, because the file has no checksums.

A read model is a pure function of the changes. One that is made anew has, at every seq, the same
entries as the one that is examined; where they differ, a disk or another program has changed it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

import lmdb

from streamydb.kafka.changes import ChangesTopic
from streamydb.read_model.errors import StoreFailedError
from streamydb.read_model.follower import Follower
from streamydb.read_model.model import ReadModel
from streamydb.read_model.snapshot import Entry, Snapshot
from streamydb.records.ranges import ScanRange
from streamydb.settings import Settings

DIFFERENCES_MAX: Final = 10  # how many keys that differ are named
_POLL_S: Final = 0.2
_PAGE: Final = 1_000


class ModelComparison(NamedTuple):
    """The outcome of a comparison.

    Attributes:
        seq: the transaction after which the states were compared.
        entries: how many keys there are by the topic.
        differing: keys that differ, the first `DIFFERENCES_MAX` in their order.
    """

    seq: int
    entries: int
    differing: list[str]


def verify(
    folder: Path,
    settings: Settings,
    scratch: Path,
    *,
    source: ChangesTopic | None = None,
    note: Callable[[int, int], None] = lambda _done, _total: None,
) -> ModelComparison:
    """Compare the read model in a folder, as it is now, with a second one made from the topic.

    Others may follow and read it meanwhile.

    ``scratch``: a folder that does not exist; the other read model is left there. ``source``: where
    the changes come from, if not from Kafka; taken over. ``note``: called with the seq that the
    other one has come to, and the last that it needs.

    Raises:
        ChangesExpiredError: the topic does not begin with the database any more.
        StoreFailedError: the file cannot even be read.
        StreamyError: as `Follower.step`.
    """
    with ReadModel.open(scratch, settings.database, write=True) as fresh:
        with ReadModel.open(folder, settings.database) as model:
            seq = model.latest().seq
        follower = Follower(fresh, settings, source=source)
        try:
            while fresh.latest().seq < seq:
                follower.step(_POLL_S)
                note(min(fresh.latest().seq, seq), seq)
        finally:
            follower.close()
        with ReadModel.open(folder, settings.database) as model:
            return _compare(model, fresh)


def _compare(model: ReadModel, fresh: ReadModel) -> ModelComparison:
    """Compare two read models at the latest seq that both have."""
    seq = min(model.latest().seq, fresh.latest().seq)
    with model.snapshot(seq) as examined, fresh.snapshot(seq) as truth:
        counted = _Counted(_entries(truth))
        differing = list(islice(_differing(_entries(examined), counted), DIFFERENCES_MAX))
        for _ in counted:
            continue
        return ModelComparison(seq, counted.count, differing)


class _Counted:
    """Counts what an iterator gives."""

    def __init__(self, entries: Iterator[Entry]) -> None:
        self._entries = entries
        self.count = 0

    def __iter__(self) -> Iterator[Entry]:
        return self

    def __next__(self) -> Entry:
        entry = next(self._entries)
        self.count += 1
        return entry


def _entries(snapshot: Snapshot) -> Iterator[Entry]:
    """All entries, a page at a time."""
    after: str | None = None
    while True:
        try:
            page = snapshot.scan(ScanRange(after=after), limit=_PAGE)
        except (ValueError, struct.error, lmdb.Error) as fault:
            raise StoreFailedError(
                f"what is stored after the key {after!r} cannot be read ({fault}). Delete the "
                "folder; its follower loads it again"
            ) from fault
        if not page:
            return
        yield from page
        after = page[-1].key


def _differing(examined: Iterator[Entry], truth: Iterator[Entry]) -> Iterator[str]:
    """Keys whose entries differ, or that only one side has, in the order of both."""
    one, other = next(examined, None), next(truth, None)
    while one is not None or other is not None:
        keys = [entry.key for entry in (one, other) if entry is not None]
        first = min(keys, key=str.encode)
        if one != other:
            yield first
        if one is not None and one.key == first:
            one = next(examined, None)
        if other is not None and other.key == first:
            other = next(truth, None)
