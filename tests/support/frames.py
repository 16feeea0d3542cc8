"""What the tests of DataFrames share: waiting for the pipeline, and a read model to compare."""

from __future__ import annotations

from pathlib import Path

from streamydb.kafka.positions import look
from streamydb.read_model import Follower, ReadModel
from streamydb.testing.database import Database, wait_for
from tests.support.read_model import drained

__all__ = ["model_of", "settled"]


def settled(db: Database) -> int:
    """Wait until everything in the log is resolved; the last seq."""
    settings = db.settings
    report = db.assert_serial()
    wait_for(lambda: look(settings).seq >= report.transactions, "everything resolved")
    return look(settings).seq


def model_of(db: Database, folder: Path) -> ReadModel:
    """A read model that has read everything there is."""
    model = ReadModel.open(folder, db.name, write=True)
    drained(Follower(model, db.settings, retention_s=float("inf")), look(db.settings).seq)
    return model
