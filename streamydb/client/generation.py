"""The generation of the seqs that a client has: which life of a history they are of.

The answers of a facade tell it, and each request says it again, so that a database that was
restored under the same address refuses what an earlier one gave out, before anything is appended
(docs/rest.md, "Generations").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

__all__ = ["Generation"]

_HEADER: Final = "Streamydb-Generation"
_SUCCESS: Final = range(200, 300)
_GONE: Final = 410
_OTHER: Final = b"other-generation"


class Generation:
    """The generation that a client has heard of; threads may share it.

    Attributes:
        text: as answers tell it; None: no answer has told it yet.
        on_lost: called when the database turns out to be of another one.
    """

    def __init__(self) -> None:
        """Know nothing."""
        self.text: str | None = None
        self.on_lost: Callable[[], None] = lambda: None

    def headers(self) -> dict[str, str]:
        """Return the headers that say it, none while it is not known."""
        return {} if self.text is None else {_HEADER: self.text}

    def hear(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Take it from an answer; the first one counts until the database says that it is gone.

        Args:
            status: of the answer.
            headers: their names in lower case, or whatever finds them by such names.
            body: of an answer that is no success.
        """
        if status in _SUCCESS:
            if self.text is None:
                self.text = headers.get(_HEADER.lower())
        elif status == _GONE and _OTHER in body:
            self.lose()

    def lose(self) -> None:
        """Forget it, and all that is of it."""
        self.text = None
        self.on_lost()
