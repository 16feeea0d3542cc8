"""Cursors: where a list or a stream goes on, as a text that a client hands back.

A cursor is no secret and grants nothing: what it says is checked like any other parameter. Its
bytes are MessagePack, which escapes nothing: four keys of any characters fit in an address.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Final, TypeVar

import msgspec

from streamydb.facade.generations import require_generation
from streamydb.facade.problems import ProblemError
from streamydb.records.formats import UNREADABLE
from streamydb.records.generation import FIRST
from streamydb.records.ranges import ScanRange

_MARK: Final = "."  # after the generation; base64 has none

_Place = TypeVar("_Place", bound=msgspec.Struct)


class ListCursor(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The place where a list goes on: the snapshot, the range, and the last key that was given."""

    at: Annotated[int, msgspec.Meta(ge=1)]
    prefix: str
    start: str | None
    end: str | None
    after: str

    @property
    def keys(self) -> ScanRange:
        """The keys that are still to come."""
        return ScanRange(self.prefix, self.start, self.end, self.after or None)


def encode_cursor(place: msgspec.Struct, generation: str = FIRST) -> str:
    """Return the text of a place in a generation, safe in a query."""
    text = base64.urlsafe_b64encode(msgspec.msgpack.encode(place)).decode().rstrip("=")
    return text if generation == FIRST else f"{generation}{_MARK}{text}"


def decode_cursor(text: str, kind: type[_Place], giver: str, generation: str = FIRST) -> _Place:
    """Return the place in a text that `giver` ("a list") has given.
    Raises ProblemError: invalid-parameter; other-generation, if it was given in another one.
    """
    cursor_generation, _, text = text.rpartition(_MARK)
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        place = msgspec.msgpack.decode(data, type=kind)
    except (binascii.Error, ValueError, *UNREADABLE):
        raise foreign_cursor(giver) from None
    require_generation(cursor_generation, generation)
    return place


def foreign_cursor(giver: str) -> ProblemError:
    detail = f"The cursor is not one that {giver} gave; begin again without it."
    return ProblemError("invalid-parameter", detail, parameters=["cursor"])
