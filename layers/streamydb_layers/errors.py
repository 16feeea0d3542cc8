"""The exceptions of the layers besides the client's; all are `LayerError`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from streamydb.errors import StreamyError

__all__ = [
    "ClaimLostError",
    "DocumentNotFoundError",
    "DuplicateIdError",
    "ForeignValueError",
    "IndexNotReadyError",
    "IndexValueTooLongError",
    "InvalidArgumentError",
    "InvalidNameError",
    "LayerError",
    "LeaseHeldError",
    "LeaseLostError",
    "MovedError",
    "UniqueViolationError",
    "UpdateError",
    "told_by",
]


class LayerError(StreamyError):
    """Base of what layers raise."""


class InvalidNameError(LayerError):
    """A name or id cannot be part of a key."""


class InvalidArgumentError(LayerError):
    """An argument is out of bounds, or does not go with another."""


class DuplicateIdError(LayerError):
    """There is something with this id already; nothing was written."""


class ForeignValueError(LayerError):
    """A key of the layer has a value that the layer has not written.

    Attributes:
        key: which one.
    """

    def __init__(self, key: str) -> None:
        """Name the key."""
        super().__init__(
            f"The value of {key!r} is none of this layer's: another program has written it. Delete "
            "the key, or put back the value that it had before."
        )
        self.key = key


@contextmanager
def told_by(key: str) -> Iterator[None]:
    """Take a value of a key apart.
    Raises ForeignValueError: it has not the shape that it should have.
    """
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError, LayerError):
        raise ForeignValueError(key) from None


class DocumentNotFoundError(LayerError):
    """There is no document with this id; nothing was written."""


class UniqueViolationError(LayerError):
    """Another document has these values in a unique index; nothing was written.

    Attributes:
        index: the index.
        other: the id of the other document.
    """

    def __init__(self, index: str, other: str) -> None:
        """Name the index and the other document."""
        super().__init__(f"Document {other!r} has the same values in the unique index {index}.")
        self.index = index
        self.other = other


class IndexNotReadyError(LayerError):
    """The index does not exist, or is still being built."""


class IndexValueTooLongError(LayerError):
    """Indexed values and id are too long for a key; nothing was written."""


class UpdateError(LayerError):
    """An update does not fit the document; nothing was written."""


class ClaimLostError(LayerError):
    """The claim is over: completed, released, or its time was up and another worker has it."""


class LeaseHeldError(LayerError):
    """Somebody else holds the lease.

    Attributes:
        holder: who; "somebody" if the client may not read it.
    """

    def __init__(self, name: str, holder: str) -> None:
        """Name the lease and its holder."""
        super().__init__(f"The lease {name!r} is held by {holder!r}.")
        self.holder = holder


class LeaseLostError(LayerError):
    """The lease is over: it was released, or not renewed in time."""

    def __init__(self, name: str) -> None:
        """Name the lease."""
        super().__init__(f"The lease {name!r} is over; acquire it again.")


class MovedError(LayerError):
    """Others were faster in every attempt; nothing was written. Try again."""
