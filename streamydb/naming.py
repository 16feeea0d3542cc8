"""What databases and pipelines may be called."""

from __future__ import annotations

import re
from typing import Final

from streamydb.limits import DATABASE_NAME_CHARACTERS_MAX

__all__ = ["DATABASE_NAME", "PIPELINE_NAME", "PIPELINE_NAME_RULE", "STANDBY"]

DATABASE_NAME: Final = re.compile(rf"[a-z][a-z0-9-]{{0,{DATABASE_NAME_CHARACTERS_MAX - 1}}}")
"""What a database may be called; the whole name must match."""

PIPELINE_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
"""What a pipeline may be called; the whole name must match."""

PIPELINE_NAME_RULE = "take at most 32 lower-case letters, digits and hyphens, no hyphen first"
"""The same, said to people."""

STANDBY: Final = "standby"
"""What a standby is called when nobody says otherwise."""
