"""The generation of the history that a facade shows, and of what requests bring along.

A request says the generation of its seqs in the header `Streamydb-Generation`; a cursor, an entity
tag and the id of an event have it in them. A seq alone is of the first generation where it says
from where on to read (`min_version`, `since`, `after`), for it may come from anywhere.
"""

from __future__ import annotations

from typing import Final

from streamydb.facade.problems import ProblemError
from streamydb.records.generation import FIRST, said_as

HEADER: Final = "Streamydb-Generation"
"""In requests the generation of the seqs that they name, in answers the one of the database."""

_MARK: Final = "@"


def with_generation(text: str, generation: str) -> str:
    """Return a text with the generation after it; the first one is left out."""
    return text if generation == FIRST else f"{text}{_MARK}{generation}"


def other_generation(said_generation: str, present: str) -> ProblemError:
    return ProblemError(
        "other-generation",
        f"This is of generation {said_as(said_generation)}, and the database is of generation "
        f"{said_as(present)}: it was restored or forked, or has lost the end of its log. Seqs "
        "stand for other transactions now: forget what you have, and read the present state.",
        generation=said_as(present),
    )


def require_generation(said_generation: str, present: str) -> None:
    """Refuse what is of another generation. Raises ProblemError: other-generation."""
    if said_generation != present:
        raise other_generation(said_generation, present)


def require_said(header: str | None, present: str, seq: int | None) -> None:
    """Refuse a seq from where on to read, if nothing says that it is of the present generation.
    ``header``: the present generation, if the request says it. Without a seq (None, 0) nothing is
    refused. Raises ProblemError: other-generation.
    """
    if header is None and seq:
        require_generation(FIRST, present)
