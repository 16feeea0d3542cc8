"""The records of `<db>.connect`: golden bytes, and payloads that fit the schemas beside them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from streamydb.records import Change, ChangeOrigin, ChangeTransaction
from streamydb.records.connect import (
    CopyProgress,
    connect_key,
    connect_value,
    decode_progress,
    encode_progress,
)

KEY = (
    b'{"schema":{"type":"struct","fields":[{"type":"string","optional":false,"field":"key"}],'
    b'"optional":false,"name":"streamydb.Key"},"payload":{"key":"a\\"b"}}'
)
ROW = (
    '"optional":true,"fields":[{"type":"string","optional":false,"field":"key"},'
    '{"type":"string","optional":false,"name":"io.debezium.data.Json","version":1,'
    '"field":"value"},{"type":"int64","optional":true,"field":"version"},'
    '{"type":"int64","optional":true,"field":"expires_ms"}],'
    '"name":"streamydb.Value"'
)
VALUE = (
    '{"schema":{"type":"struct","fields":[{"type":"struct",' + ROW + ',"field":"before"},'
    '{"type":"struct",' + ROW + ',"field":"after"},'
    '{"type":"struct","optional":false,"fields":['
    '{"type":"string","optional":false,"field":"connector"},'
    '{"type":"string","optional":false,"field":"db"},'
    '{"type":"int32","optional":false,"field":"partition"},'
    '{"type":"int64","optional":false,"field":"offset"},'
    '{"type":"int64","optional":false,"field":"seq"}],'
    '"name":"streamydb.Source","field":"source"},'
    '{"type":"string","optional":false,"field":"op"},'
    '{"type":"int64","optional":false,"field":"ts_ms"},'
    '{"type":"struct","optional":false,"fields":['
    '{"type":"string","optional":false,"field":"id"},'
    '{"type":"int64","optional":false,"field":"total_order"},'
    '{"type":"int64","optional":false,"field":"data_collection_order"}],'
    '"name":"event.block","version":1,"field":"transaction"}],'
    '"optional":false,"name":"streamydb.Envelope","version":1},'
    '"payload":{"before":{"key":"k","value":"1","version":null,"expires_ms":null},'
    '"after":{"key":"k","value":"{\\"a\\":\\"\\\\n\\"}","version":7,"expires_ms":null},'
    '"source":{"connector":"streamydb","db":"bank","partition":2,"offset":5,"seq":7},'
    '"op":"u","ts_ms":1000,'
    '"transaction":{"id":"t","total_order":1,"data_collection_order":1}}}'
).encode()

KINDS = {"string": str, "int32": int, "int64": int}


def change(op: str = "u", before: str = "1", after: str = '{"a":"\\n"}') -> Change:
    return Change(
        op, Raw(before.encode()), Raw(after.encode()), 1000,  # type: ignore[arg-type]
        ChangeOrigin("streamydb", "bank", 2, 5, 7), ChangeTransaction("t", 1, 1),
    )  # fmt: skip


def fits(schema: dict[str, Any], payload: Any) -> bool:
    """Tell whether Connect's JsonConverter would take a payload with this schema."""
    if payload is None:
        return bool(schema["optional"])
    if schema["type"] != "struct":
        return type(payload) is KINDS[schema["type"]]
    fields = {field["field"]: field for field in schema["fields"]}
    return payload.keys() == fields.keys() and all(
        fits(fields[name], value) for name, value in payload.items()
    )


def test_a_key() -> None:
    assert connect_key('a"b') == KEY


def test_an_update() -> None:
    assert connect_value("k", change()) == VALUE


@pytest.mark.parametrize(
    ("op", "before", "after"), [("c", "null", "1"), ("u", "1", "2"), ("d", "[null]", "null")]
)
def test_what_is_not_there_is_null(op: str, before: str, after: str) -> None:
    found = json.loads(connect_value("k", change(op, before, after)))["payload"]
    for name, value in (("before", before), ("after", after)):
        assert (found[name] or {"value": "null"})["value"] == value
    assert found["op"] == op


def test_an_end_is_a_field_of_what_is_left() -> None:
    ending = change()
    ending.expires_ms = 1500
    found = json.loads(connect_value("k", ending))
    assert [found["payload"][name]["expires_ms"] for name in ("before", "after")] == [None, 1500]
    assert fits(found["schema"], found["payload"])


@given(key=st.text(min_size=1), value=st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=5,
))  # fmt: skip
def test_payloads_fit_their_schemas(key: str, value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False)
    found = json.loads(connect_value(key, change(before=text, after="0")))
    assert fits(found["schema"], found["payload"])
    if value is not None:
        assert json.loads(found["payload"]["before"]["value"]) == value
    named = json.loads(connect_key(key))
    assert fits(named["schema"], named["payload"])
    assert named["payload"]["key"] == key


def test_progress_comes_back() -> None:
    progress = CopyProgress("topic", 3, 2**62)
    assert decode_progress(encode_progress(progress)) == progress
    assert encode_progress(progress) == b"topic 3 4611686018427387904"
    with pytest.raises(ValueError, match="not enough"):
        decode_progress(b"")
