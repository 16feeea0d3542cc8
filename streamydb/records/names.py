"""Names in transactions: reserved keys and ids, and the patterns of modules, hashes, follow-ups."""

from __future__ import annotations

from typing import Final

from streamydb import limits

RESERVED: Final = "$"
"""Begins the keys that only the database itself writes."""

MODULES_PREFIX: Final = "$procedures/"
"""Begins the keys under which the deployed versions of modules lie."""

FLOWS_PREFIX: Final = "$flows/"
"""Begins the keys under which workflows count their follow-ups, by module."""

WINDOWS_PREFIX: Final = "$windows/"
"""Begins the keys of windows: module, dot, name."""

FOLLOW_UP_PREFIX: Final = "$flow/"
"""Begins the ids of follow-ups, and of nothing else."""

FOLLOW_UP_MARK: Final = b'{"id":"' + FOLLOW_UP_PREFIX.encode()
"""Begins the records of follow-ups; a client may append one that begins so, and is rejected."""

CONSTRAINTS_KEY: Final = "$constraints"
"""The key under which the declared constraints lie."""

UNIQUE_PREFIX: Final = "$unique/"
"""Begins the keys of the index behind uniqueness: the only ones that a transaction may lock."""

NAME: Final = rf"[A-Za-z_][A-Za-z0-9_]{{0,{limits.PROCEDURE_NAME_CHARACTERS_MAX - 1}}}"
"""Pattern of the name of a module or of a procedure in it."""

HASH: Final = "sha256:[0-9a-f]{64}"
"""Pattern of the hash of a module's file."""

FOLLOW_UP_ID: Final = r"\$flow/[1-9][0-9]{0,18}/[1-9][0-9]{0,18}"
"""Pattern of the id of a follow-up: the seq of who emitted, and a number."""
