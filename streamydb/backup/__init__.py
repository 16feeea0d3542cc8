"""Backups of a database: a copy of its log, made while it runs, and states to begin with.

In goes `<db>.transactions`; nothing else is needed, because everything after the log is a function
of it. A backup is a folder:

    backup.json               what it is; written last, replaced as a whole
    log/<partition>/*.seg     the records of the log with offsets and append times, compressed
    states/<seq>/             keys, values, versions and remembered ids right after a seq
    procedures/               the modules of stored procedures

`take` copies what has come since the last time and makes a state by executing the copy in this
process (`replay`), with the classes of the pipeline; so a backup that is there has been restored
once already, and its digests were held against those that the pipeline told. `restore` makes a new
database that is right after any seq; `start_blobs` are what a pipeline begins with when it does not
begin with an empty database, for any number of shards.

Invariants: a file counts only with its checksum; a folder without `backup.json` is no backup; what
is in it is never changed, only added to or, for states, removed; a newer format is refused.
"""

from __future__ import annotations

from streamydb.backup.folder import BackupFolder, StateFolder
from streamydb.backup.manifest import BackupError, BackupManifest
from streamydb.backup.state import State, start_blobs

__all__ = ["BackupError", "BackupFolder", "BackupManifest", "State", "StateFolder", "start_blobs"]
