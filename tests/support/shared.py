"""A database with a pipeline of its own on the broker that all tests of a run share."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from streamydb.local.broker import EmbeddedBroker
from streamydb.local.folder import DatabaseFolder
from streamydb.testing.database import Database

__all__ = ["OnShared"]


class _Running(EmbeddedBroker):
    """A broker that others started, and that goes on."""

    def start(self, *_: object, **__: object) -> Self:
        """It runs."""
        return self

    def kill(self) -> None:
        """It goes on."""


class OnShared(Database):
    """A database for tests that leave the broker alone; it begins some seconds earlier.

    Args:
        folder: where everything of it lies, but for its records.
        broker: the home of the broker.
        shards: slices of the keys.
        options: more arguments of `python -m streamydb.pipeline`.
    """

    def __init__(
        self, folder: Path, broker: Path, *, shards: int = 1, options: Sequence[str] = ()
    ) -> None:
        """Nothing is started yet."""
        super().__init__(folder, shards=shards, options=options)
        self.name = f"t{uuid.uuid4().hex[:12]}"
        self.broker = _Running(broker)
        self.place = DatabaseFolder(folder / "home", self.name)
