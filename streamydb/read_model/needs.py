"""The part of a log that a read model still needs."""

from __future__ import annotations

from collections.abc import Iterator

from streamydb.backup.needs import Need
from streamydb.local.folder import DatabaseFolder
from streamydb.read_model.errors import StoreMissingError
from streamydb.read_model.model import ReadModel


def read_model_needs(place: DatabaseFolder, database: str) -> Iterator[Need]:
    """The read model of this home: what it lacks comes from the changes, not from the log; but
    while it is behind, nobody has seen that those are whole.
    """
    if not place.read_model.exists():
        return
    try:
        model = ReadModel.open(place.read_model, database)
    except StoreMissingError:
        return
    try:
        seq = model.store.resolved().seq
    finally:
        model.close()
    yield Need(f"the read model {place.read_model}", "read-model", seq, None)
