"""Databases for tests: those of streamy-db, and yours.

`Database` is a real one, whose broker and pipeline may be killed at will; `MemoryHost` is one in
memory with clients of it, and breaks their connections.
"""

from __future__ import annotations

from streamydb.testing.clients import Awaited, MemoryHost
from streamydb.testing.database import Database, TestingError, wait_for
from streamydb.testing.faults import Faults

__all__ = ["Awaited", "Database", "Faults", "MemoryHost", "TestingError", "wait_for"]
