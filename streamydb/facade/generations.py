"""The generation of the history that a facade shows, and of what requests bring along.

A request says the generation of its seqs in the header `Streamydb-Generation`; a cursor, an entity
tag and the id of an event have it in them. A seq alone is of the first generation where it says
from where on to read (`min_version`, `since`, `after`), for it may come from anywhere.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl

from streamydb.facade.problems import ProblemError
from streamydb.records.generation import FIRST, GENERATION, said, said_as

HEADER: Final = "Streamydb-Generation"
"""In requests the generation of the seqs that they name, in answers the one of the database."""

_BARE: Final = {"min_version", "since", "after"}  # parameters with a seq from where on to read
_MARK: Final = "@"


def with_generation(text: str, generation: str) -> str:
    """Return a text with the generation after it; the first one is left out."""
    return text if generation == FIRST else f"{text}{_MARK}{generation}"


def require_generation(said_generation: str, present: str) -> None:
    """Refuse what is of another generation. Raises ProblemError: other-generation."""
    if said_generation != present:
        raise ProblemError(
            "other-generation",
            f"This is of generation {said_as(said_generation)}, and the database is of generation "
            f"{said_as(present)}: it was restored or forked, or has lost the end of its log. Seqs "
            "stand for other transactions now: forget what you have, and read the present state.",
            generation=said_as(present),
        )


def require_said(header: str | None, present: str, seq: int | None) -> None:
    """Refuse a seq from where on to read, if nothing says that it is of the present generation.
    ``header``: the present generation, if the request says it. Without a seq (None, 0) nothing is
    refused. Raises ProblemError: other-generation.
    """
    if header is None and seq:
        require_generation(FIRST, present)


def require_said_in(query: bytes, header: str | None, present: str) -> None:
    """Require the same of the parameters of a query.
    Raises ProblemError: other-generation; invalid-parameter, if the header says no generation.
    """
    if header is not None:
        if not GENERATION.fullmatch(header):
            detail = f"{HEADER} is sent once, with a generation as answers tell it."
            raise ProblemError("invalid-parameter", detail, parameters=[HEADER])
        require_generation(said(header), present)
    elif present != FIRST and query:
        pairs = parse_qsl(query.decode("latin-1"))
        if any(name in _BARE and value.strip("0.") for name, value in pairs):
            require_generation(FIRST, present)
