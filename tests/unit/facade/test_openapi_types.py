"""The schemas of the OpenAPI document: as strict as those of the records,
and fit for generators.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema_rs import Draft202012Validator

from streamydb.facade import create_app
from streamydb.records import schemas
from streamydb.testing.in_process import InProcess
from streamydb.testing.memory import MemoryDatabase
from streamydb.verify.oracle.core import Oracle
from tests.support.generators import PAYLOADS, TRANSACTIONS, mutated
from tests.support.seeds import seeds

NUMBERS = {"integer": "int64", "number": "double"}
KINDS = {"results": "result", "changes": "change"}


def _document() -> dict[str, Any]:
    database = MemoryDatabase()
    app = create_app(database.model, database.log, database.changes)

    async def ask() -> dict[str, Any]:
        async with InProcess(app) as client:
            found: dict[str, Any] = (await client.request("GET", "/schema/openapi.json")).json()
            return found

    return asyncio.run(ask())


DOCUMENT = _document()


def parts(schema: Any) -> Iterator[dict[str, Any]]:
    """All schemas in a part of the document."""
    if isinstance(schema, list):
        for part in schema:
            yield from parts(part)
    elif isinstance(schema, dict):
        yield schema
        for name, part in schema.items():
            yield from parts(list(part.values()) if name == "properties" else part)


def shapes() -> Iterator[dict[str, Any]]:
    """All schemas of the document, those of parameters, bodies and answers too."""
    yield from parts(list(DOCUMENT["components"]["schemas"].values()))
    for item in DOCUMENT["paths"].values():
        for operation in item.values():
            yield from parts([p["schema"] for p in operation.get("parameters", ())])
            for place in (operation.get("requestBody", {}), *operation["responses"].values()):
                yield from parts([c["schema"] for c in place.get("content", {}).values()])


def test_generators_understand_every_schema() -> None:
    found = list(shapes())
    assert len(found) > 300
    for schema in found:
        kinds = schema.get("type", [])
        kinds = [kinds] if isinstance(kinds, str) else kinds
        assert "const" not in schema, schema
        assert len(set(kinds) - {"null"}) < 2, schema
        assert "enum" not in schema or kinds == ["string"], schema
        if "object" in kinds:
            assert "properties" in schema or "additionalProperties" in schema, schema
        if "array" in kinds:
            assert "items" in schema, schema
        for kind in kinds:
            assert schema.get("format") == NUMBERS.get(kind) or kind not in NUMBERS, schema
        if {"type": "null"} in schema.get("anyOf", []):  # a reference has no type to be null
            assert [list(part) for part in schema["anyOf"]] == [["$ref"], ["type"]], schema
        assert {"type": "null"} not in schema.get("oneOf", []), schema


def test_a_parameter_is_left_out_and_never_null() -> None:
    operations = [o for item in DOCUMENT["paths"].values() for o in item.values()]
    parameters = [p["schema"] for o in operations for p in o.get("parameters", ())]
    assert len(parameters) > 40
    for schema in parameters:
        assert isinstance(schema["type"], str), schema
        assert None not in schema.get("enum", []), schema


def test_methods_have_short_names_of_their_own() -> None:
    names = [o["operationId"] for item in DOCUMENT["paths"].values() for o in item.values()]
    assert len(set(names)) == len(names)
    assert {"getValue", "putValue", "listValues", "postTransaction"} <= set(names)


def validator(name: str) -> Any:
    place = f"#/components/schemas/{name}"
    return Draft202012Validator({"$ref": place, "components": DOCUMENT["components"]})


@settings(max_examples=seeds(60))
@given(st.lists(PAYLOADS, max_size=8))
def test_every_verdict_and_change_fits(payloads: list[bytes | None]) -> None:
    oracle = Oracle("db", id_window=5)
    for offset, payload in enumerate(payloads):
        for record in oracle.apply(payload, 0, offset, 1000 + offset):
            if record.value is not None and record.topic in KINDS:
                value = json.loads(record.value)
                key = {"key": "k"} if record.topic == "changes" else {}
                validator(KINDS[record.topic]).validate({**key, **value})


IN_THE_DOCUMENT = validator("transaction")
IN_THE_LOG = Draft202012Validator(schemas.schemas()["transaction"])


@settings(max_examples=seeds(200))
@given(st.one_of(TRANSACTIONS, mutated()))
def test_a_transaction_is_told_from_others_as_in_the_log(transaction: Any) -> None:
    named = {"id": "t", **transaction} if isinstance(transaction, dict) else transaction
    assert IN_THE_DOCUMENT.is_valid(transaction) == IN_THE_LOG.is_valid(named)
