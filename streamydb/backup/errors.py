"""The errors of making and using backups."""

from __future__ import annotations

from streamydb.errors import StreamyError


class BackupError(StreamyError):
    """A folder is no backup, a damaged one or another database's; or something still needs it."""
