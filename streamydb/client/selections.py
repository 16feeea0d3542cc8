"""Say which changes a watch gives; what makes no sense is refused before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamydb.client.problems import InvalidParameterError
from streamydb.client.reads import check_bound
from streamydb.client.requests import Selection
from streamydb.records import canonical
from streamydb.records.condition import condition, condition_form

Condition = Mapping[str, Any]


def selection(
    prefix: str, start: str | None, end: str | None,
    where: Condition | None, where_before: Condition | None,
) -> Selection:  # fmt: skip
    """Return the changes of a range of keys whose values fulfil conditions.
    Raises InvalidParameterError: a bound is longer than any key, or a condition is none.
    """
    for bound in (prefix, start or "", end or ""):
        check_bound(bound)
    after = _condition("where", where, versioned=True)
    return Selection(
        prefix, start, end, after, _condition("where_before", where_before, versioned=False)
    )


def _condition(name: str, given: Condition | None, *, versioned: bool) -> str | None:
    if given is None:
        return None
    if condition(given, versioned=versioned) is None:
        raise InvalidParameterError(condition_form(name, versioned=versioned))
    return canonical(dict(given)).decode()
