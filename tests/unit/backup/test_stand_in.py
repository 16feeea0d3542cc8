"""Stand-ins of records that no new log takes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamydb.backup.stand_in import FITTING_BYTES_MAX, fitting
from streamydb.limits import DEAD_LETTER_PAYLOAD_BYTES_MAX, TRANSACTION_BYTES_MAX
from streamydb.verify.oracle.core import replay
from streamydb.verify.oracle.order import LogRecord
from tests.support.seeds import seeds, thinned

LARGE = "v" * 1_050_000


def put(name: Any, value: str) -> dict[str, Any]:
    return {"id": name, "updates": [{"op": "put", "key": "a", "value": value}]}


RECORDS = {
    "its id at the beginning": json.dumps(put("first", LARGE)).encode(),
    "its id at the end": json.dumps(dict(reversed(put("last", LARGE).items()))).encode(),
    "an id that is none": json.dumps(put(5, LARGE)).encode(),
    "no object": json.dumps([LARGE]).encode(),
    "an id with a quote": json.dumps(put('a"b\u00e9', LARGE)).encode(),
    "blanks": json.dumps(put("blank", "x")).encode().ljust(2_000_000),
    "no text": b"\xff" * 2_000_000,
    "cut off": json.dumps(put("half", LARGE)).encode()[:-2],
}

CUTS = [
    b'"id":"n"', b'"a":true', b'"b":[[1,{"c":"]"}]]', b'"d":"q\\"\\\\"', b'"e\xc3\xa9":-1.5e3',
    b'"f":{}',
]  # fmt: skip


def outputs(*values: bytes | None) -> list[Any]:
    log = {0: [LogRecord(offset, 1_000 + offset, value) for offset, value in enumerate(values)]}
    return replay(log, database="bank", initial_partitions=1).outputs


@pytest.mark.parametrize("name", RECORDS)
def test_a_stand_in_has_the_verdict_and_the_dead_letter_of_its_record(name: str) -> None:
    value = RECORDS[name]
    stand_in = fitting(None, value)
    assert stand_in is not None
    assert TRANSACTION_BYTES_MAX < len(stand_in) <= FITTING_BYTES_MAX
    before, after = json.dumps(put("a", "b")).encode(), json.dumps(put("first", "c")).encode()
    whole = outputs(before, value, value, after)
    assert whole == outputs(before, stand_in, stand_in, after)
    assert b"transaction-too-large" in b"".join(each.value or b"" for each in whole)


def test_two_records_with_one_id_have_two_stand_ins() -> None:
    first, second = (json.dumps(put("x", LARGE + end)).encode() for end in "ab")
    assert fitting(None, first) != fitting(None, second)
    assert outputs(first, second) == outputs(fitting(None, first), fitting(None, second))


@pytest.mark.parametrize("key", [None, b"k" * 480])
def test_what_fits_stays(key: bytes | None) -> None:
    room = FITTING_BYTES_MAX - len(key or b"")
    assert fitting(key, b"x" * room) == b"x" * room
    assert fitting(key, b"x" * (room + 1)) == b"x" * room
    assert fitting(key, None) is None


@pytest.mark.parametrize("shift", thinned(range(0, 90, 5), 9))
def test_the_first_bytes_may_end_anywhere(shift: int) -> None:
    """The beginning that a dead letter shows ends within each part of a record."""
    fields = b"{" + b",".join(CUTS)
    start = b" " * (DEAD_LETTER_PAYLOAD_BYTES_MAX - shift)
    value = start + fields + b',"value":"' + LARGE.encode() + b'"}'
    stand_in = fitting(None, value)
    assert outputs(value) == outputs(stand_in)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)
FIELDS = st.lists(st.tuples(st.sampled_from(["id", "a", "updates", '"', "}"]), JSON), max_size=6)


@settings(max_examples=seeds(20, 8), deadline=None)
@given(before=FIELDS, after=FIELDS, blanks=st.integers(0, 200), ascii_only=st.booleans())
def test_any_record_keeps_its_outputs(
    before: list[tuple[str, Any]], after: list[tuple[str, Any]], blanks: int, *, ascii_only: bool
) -> None:
    """The beginning that is kept ends within the fields before the long one."""
    fields = [*before, ("value", LARGE), *after, ("id", "n")]
    texts = [json.dumps(name) + ":" + json.dumps(each, ensure_ascii=ascii_only)
             for name, each in fields]  # fmt: skip
    start = "{".ljust(DEAD_LETTER_PAYLOAD_BYTES_MAX - blanks)
    value = (start + ",".join(texts) + "}").encode()
    stand_in = fitting(None, value)
    assert len(stand_in or b"") <= FITTING_BYTES_MAX
    assert outputs(value, value) == outputs(stand_in, stand_in)
