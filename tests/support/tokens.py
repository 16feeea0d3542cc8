"""Tokens of a facade for tests, and a facade that knows them."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic import SecretStr

from streamydb.facade import FacadeSettings, create_app
from streamydb.testing.in_process import InProcess
from streamydb.testing.memory import MemoryDatabase

__all__ = [
    "ADMIN", "NARROW", "NOBODY", "READER", "TOKENS", "WRITER", "bearer", "connect", "settings_of",
]  # fmt: skip

ADMIN = "admin-secret-0123456789"
READER = "reader-secret-0123456789"
WRITER = "writer-secret-0123456789"
NOBODY = "nobody-secret-0123456789"
NARROW = "narrow-secret-0123456789"
TOKENS: list[dict[str, Any]] = [
    {"name": "admin", "token": ADMIN, "read": [""], "write": [""]},
    {
        "name": "reader",
        "sha256": hashlib.sha256(READER.encode()).hexdigest(),
        "read": ["acct/", "é/"],
    },
    {"name": "writer", "token": WRITER, "write": ["acct/"]},
    {"name": "nobody", "token": NOBODY},
    {"name": "narrow", "token": NARROW, "write": ["acct/1/"]},
]


def settings_of(tokens: Any = TOKENS, **more: Any) -> FacadeSettings:
    return FacadeSettings(tokens=SecretStr(json.dumps(tokens)), **more)


def connect(database: MemoryDatabase, **more: Any) -> InProcess:
    app = create_app(database.model, database.log, database.changes, settings_of(**more))
    return InProcess(app)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}
