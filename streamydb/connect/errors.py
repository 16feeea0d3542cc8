"""What keeps the copy for Kafka Connect from going on."""

from __future__ import annotations

from streamydb.errors import StreamyError

__all__ = ["ConnectError"]


class ConnectError(StreamyError):
    """The copy is missing, has another writer, or is that of other changes."""
