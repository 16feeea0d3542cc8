"""Verdicts of transactions that break many rules, or rules that have much to tell."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamydb import limits
from streamydb.txn_processor import outputs as o
from tests.unit.key_processor.test_expiry import GROUPINGS, Database

LONG = "~" * 220_000
"""A name of a property, which takes twice as many characters in a JSON Pointer."""


def verdicts(db: Database) -> list[dict[str, Any]]:
    """All results, judged by the oracle; none is too large for a record."""
    db.changes()
    values = [w.value or b"" for w in db.cluster.written if w.topic == o.RESULTS]
    assert max(map(len, values)) <= limits.RESULT_BYTES_MAX
    return sorted((json.loads(value) for value in values), key=lambda each: each["seq"])


@GROUPINGS
@pytest.mark.parametrize("at_once", [False, True])
def test_what_is_told_of_broken_rules_fits_into_a_result(grouping: str, *, at_once: bool) -> None:
    """A name of a property is as long as a value may be, and each constraint tells it again: a
    result that no topic takes would end every attempt at its micro-batch.
    """
    db = Database(grouping, at_once=at_once)
    for name in "abc":
        closed = {"additionalProperties": False}
        db.add(1_000, constrain={"declare": {"name": name, "prefix": "k", "schema": closed}})
    db.add(1_001, {"op": "put", "key": "k/1", "value": {LONG: 1}})
    db.add(1_001, {"op": "put", "key": "k/1", "value": {"y" * 1_000: 1}})
    for each in verdicts(db)[3:]:
        told = [failed["violated"] for failed in each["failed"]]
        assert each["code"] == "constraint-violated"
        assert len(told) == 3
        head = "schema additionalProperties at /"
        cut = (head + "~0" * 300)[: limits.VIOLATED_CHARACTERS_MAX]
        whole = head + "y" * 1_000 if each["seq"] == 5 else cut
        assert set(told) == {whole}


def test_a_result_has_room_for_all_entries() -> None:
    characters = limits.KEY_BYTES_MAX + limits.VIOLATED_CHARACTERS_MAX
    entry = 6 * characters + limits.FAILED_VALUE_BYTES_MAX + 400
    assert limits.FAILED_ENTRIES_MAX * entry <= limits.RESULT_BYTES_MAX
