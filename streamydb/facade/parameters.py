"""The parameters of requests, as the OpenAPI document shows them."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from litestar.params import QueryParameter

from streamydb.facade.reads import Consistency
from streamydb.limits import INTEGER_MAX, TTL_MS_MAX

__all__ = [
    "AsAfter",
    "AsConsistency",
    "AsCursor",
    "AsEnd",
    "AsLimit",
    "AsMinVersion",
    "AsPrefix",
    "AsRecord",
    "AsSeq",
    "AsSince",
    "AsStart",
    "AsStreamCursor",
    "AsWait",
    "AsWhere",
    "AsWhereBefore",
]

_TEXT_MAX = 8_192

AsSeq: TypeAlias = Annotated[
    int | None,
    QueryParameter(
        ge=1, le=INTEGER_MAX, description="The state after this seq (an ETag's number); not with "
        "consistency strong or session."
    ),
]
AsConsistency: TypeAlias = Annotated[
    Consistency | None,
    QueryParameter(
        description="strong (linearizable; default), session (at least `min_version`), or snapshot "
        "(what the read model has, without waiting)."
    ),
]
AsMinVersion: TypeAlias = Annotated[
    int | None,
    QueryParameter(
        ge=1, le=INTEGER_MAX, description="Show a state that includes this seq; at most `at`."
    ),
]
AsTtl: TypeAlias = Annotated[
    int | None,
    QueryParameter(
        ge=1, le=TTL_MS_MAX, description="The key is absent from so many ms after the commit on."
    ),
]
AsPrefix: TypeAlias = Annotated[
    str | None, QueryParameter(max_length=_TEXT_MAX, description="Only keys that begin so.")
]
AsStart: TypeAlias = Annotated[
    str | None, QueryParameter(max_length=_TEXT_MAX, description="Only keys from this one on.")
]
AsEnd: TypeAlias = Annotated[
    str | None, QueryParameter(max_length=_TEXT_MAX, description="Only keys before this one.")
]
AsLimit: TypeAlias = Annotated[
    int, QueryParameter(ge=1, description="Most entries in a page; /v1/limits has the largest.")
]
AsCursor: TypeAlias = Annotated[
    str | None,
    QueryParameter(
        max_length=_TEXT_MAX, description="Go on where an answer ended, at its snapshot; alone, or "
        "with the same parameters."
    ),
]
AsStreamCursor: TypeAlias = Annotated[
    str | None,
    QueryParameter(
        max_length=_TEXT_MAX, description="Go on where an answer ended; not with `after`."
    ),
]
AsSince: TypeAlias = Annotated[
    int | None,
    QueryParameter(
        ge=0, le=INTEGER_MAX, description="Changes after this seq; default: from now on."
    ),
]
AsWhere: TypeAlias = Annotated[
    str | None,
    QueryParameter(
        max_length=_TEXT_MAX, description="Only changes whose value after them keeps this check: "
        'JSON without a key, such as {"ge": 100}; `version` is the change\'s seq.'
    ),
]
AsWhereBefore: TypeAlias = Annotated[
    str | None,
    QueryParameter(
        max_length=_TEXT_MAX, description="The same for the value before them; has no `version`."
    ),
]
AsAfter: TypeAlias = Annotated[
    str | None,
    QueryParameter(
        pattern=r"^[0-9]{1,19}([.][0-9]{1,19})?$",
        description="Begin after this transaction (seq), or after one of its records (seq.index).",
    ),
]
AsWait: TypeAlias = Annotated[
    float,
    QueryParameter(
        ge=0, le=3_600, description="Seconds to wait for a record, at most heartbeat_s of limits."
    ),
]
AsRecord: TypeAlias = Annotated[
    str | None,
    QueryParameter(
        pattern=r"^[0-9]{1,9}:[0-9]{1,19}$",
        description="Where the record is in the log (partition:offset), as Location has it.",
    ),
]
