"""The field that a refusal names, for any bytes: always one of the record, and what it holds."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given

from streamydb import errors
from streamydb.facade.payloads import culprit
from streamydb.records.decoder import decode
from streamydb.records.rejection import Rejection
from tests.support.generators import PAYLOADS

DEEP = b"[" * 970, b"]" * 970
TWICE = b'{"op":"put","key":"a","value":1}'


@given(payload=PAYLOADS)
@example(payload=b'{"id":"t","updates":[{"op":"put","key":"","value":1}]}')
@example(payload=b'{"id":"t","updates":[%s,%s]}' % (TWICE, TWICE))
@example(payload=b'{"id":"t","checks":[{"key":"a"}]}')
@example(payload=b'{"id":"t","updates":[{"op":"put","key":"a","value":%s1e999%s}]}' % DEEP)
def test_a_refusal_names_a_field_of_the_record_and_what_it_holds(payload: bytes | None) -> None:
    verdict = decode(payload)
    if payload is None or not isinstance(verdict, Rejection):
        return
    found = culprit(verdict.code, payload)
    if found is None:
        return
    assert found.wrong
    record: Any = json.loads(payload)
    steps = found.field.replace("[", ".[").split(".")
    for step in (step for step in steps if step):
        if isinstance(record, list) and step.startswith("["):
            record = record[int(step[1:-1])]
        elif isinstance(record, dict) and step in record:
            record = record[step]
        else:
            assert found.given is None, "the field is missing, so it holds nothing"
            return
    assert (found.given or "") != "" or verdict.code == errors.INVALID_TRANSACTION
