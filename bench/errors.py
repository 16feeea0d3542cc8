"""What goes wrong in a measurement."""

from __future__ import annotations

from streamydb.errors import StreamyError

__all__ = ["BenchError"]


class BenchError(StreamyError):
    """A measurement could not be finished; the message says why and shows the log's end."""
