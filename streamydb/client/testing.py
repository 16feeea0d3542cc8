"""The old name of `streamydb.testing`; imports from here still work."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    return getattr(import_module("streamydb.testing.clients"), name)
