"""The identity of a store: the version of its layout, and its database."""

from __future__ import annotations

from pathlib import Path

import msgspec

from streamydb.read_model.errors import StoreFailedError, StoreMismatchError, StoreMissingError
from streamydb.records.formats import UNREADABLE

__all__ = ["check_identity", "identity"]


class _Identity(msgspec.Struct):
    format: int
    database: str


def identity(number: int, database: str) -> bytes:
    """The identity of a store of format ``number``."""
    return msgspec.json.encode(_Identity(number, database))


def check_identity(found: bytes, number: int, database: str, folder: Path) -> None:
    """Require that a stored identity (empty: there is none) is of a format and a database.

    Raises:
        StoreMissingError: it is not written yet.
        StoreMismatchError: it is of another format, or of another database.
        StoreFailedError: it is none.
    """
    if not found:
        raise StoreMissingError(f"the read model in {folder} is still empty; try again")
    try:
        known = msgspec.json.decode(found, type=_Identity)
    except UNREADABLE as fault:
        raise StoreFailedError(f"{folder} is no read model: {fault}") from fault
    if known.database != database:
        raise StoreMismatchError(
            f"the read model in {folder} is of the database {known.database!r}, not of "
            f"{database!r}; name another folder"
        )
    if known.format != number:
        raise StoreMismatchError(
            f"the read model in {folder} has format {known.format}, this program writes format "
            f"{number}; delete the folder and load it again"
        )
