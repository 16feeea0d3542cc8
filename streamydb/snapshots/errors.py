"""What reading and writing snapshots refuses."""

from __future__ import annotations

from streamydb.errors import StreamyError

__all__ = ["SnapshotError"]


class SnapshotError(StreamyError):
    """A folder is no snapshot, a damaged one, or none can be taken."""
