"""The published JSON Schemas: up to date, and true of every record that the oracle emits."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema_rs import Draft202012Validator, meta

from streamydb.records import (
    Marker,
    Rejection,
    Resolved,
    decode,
    encode_marker,
    encode_resolved,
    schemas,
)
from streamydb.verify.oracle.core import Oracle
from tests.support.generators import PAYLOADS, TRANSACTIONS, as_bytes, mutated

FOLDER = Path(__file__).parents[3] / "docs" / "schemas"
KINDS = {"results": "result", "changes": "change", "deadletters": "deadletter"}

NOT_IN_A_SCHEMA = {"number-range", "duplicate-update", "call-not-alone", "reserved-id"}
"""Faults of generated transactions that no schema can state."""


@cache
def validator(name: str) -> Any:
    return Draft202012Validator(schemas.schemas()[name])


def test_the_published_files_are_up_to_date(tmp_path: Path) -> None:
    schemas.write(tmp_path)
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    published = {path.name: path.read_text() for path in FOLDER.glob("*.json")}
    assert published == made, "run: python -m streamydb.records.schemas docs/schemas"


@pytest.mark.parametrize("name", schemas.schemas())
def test_the_schemas_are_schemas(name: str) -> None:
    meta.validate(schemas.schemas()[name])


@settings(max_examples=200)
@given(st.lists(PAYLOADS, max_size=8))
def test_every_record_of_the_oracle_fits(payloads: list[bytes | None]) -> None:
    oracle = Oracle("db", id_window=5)
    for offset, payload in enumerate(payloads):
        for record in oracle.apply(payload, 0, offset, 1000 + offset):
            if record.value is not None:
                validator(KINDS[record.topic]).validate(json.loads(record.value))


@settings(max_examples=500)
@given(st.one_of(TRANSACTIONS, mutated()))
def test_the_schema_and_the_decoder_agree(transaction: Any) -> None:
    found = decode(as_bytes(transaction))
    if isinstance(found, Rejection) and found.code in NOT_IN_A_SCHEMA:
        return
    if isinstance(found, Marker):
        assert validator("marker").is_valid(transaction)
        return
    accepted = not isinstance(found, Rejection)
    assert validator("transaction").is_valid(transaction) == accepted


@pytest.mark.parametrize("number", [0, 2**53 - 1])
def test_markers_and_resolved_records_fit(number: int) -> None:
    validator("marker").validate(json.loads(encode_marker(Marker(number, 1, "s"))))
    validator("resolved").validate(json.loads(encode_resolved(Resolved(1, number, {"0": 2}))))
    assert not validator("resolved").is_valid({"resolved": 1, "ts_ms": 1, "offsets": {"x": 1}})
