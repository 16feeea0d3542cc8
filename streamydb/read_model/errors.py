"""The errors of a read model."""

from __future__ import annotations

from streamydb.errors import ReadModelError


class SnapshotGone(ReadModelError):  # noqa: N818 - the agreed name
    """The snapshot is older than what is kept; ``oldest`` is the smallest seq that is left."""

    def __init__(self, at: str, oldest: int) -> None:
        super().__init__(
            f"the snapshot at {at} has been collected; the oldest that is kept is seq {oldest}. "
            "Ask for a newer one, or let the follower keep more (--retention-s, --retention-seqs)"
        )
        self.oldest = oldest


class SnapshotAhead(ReadModelError):  # noqa: N818 - the agreed name
    """The snapshot is not complete yet; ``latest`` is the largest seq that is."""

    def __init__(self, at: int, latest: int) -> None:
        super().__init__(
            f"seq {at} is not resolved in this read model yet, it has seq {latest}; wait until "
            "its follower has caught up, or ask for an older one"
        )
        self.latest = latest


class StoreMissingError(ReadModelError):
    """There is no read model in the folder."""


class StoreMismatchError(ReadModelError):
    """The store belongs to another database, topic or format."""


class StoreFailedError(ReadModelError):
    """The store's file cannot be read or written."""


class StoreBusyError(ReadModelError):
    """The store's map must change its size, and snapshots of this process stay open."""


class WriterRunningError(ReadModelError):
    """Another process (or another object of this one) writes the store."""
