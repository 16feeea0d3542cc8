"""The error of a copy for Kafka Connect that cannot go on."""

from __future__ import annotations

from streamydb.errors import StreamyError


class ConnectError(StreamyError):
    """The copy is missing, has another writer, or is that of other changes."""
