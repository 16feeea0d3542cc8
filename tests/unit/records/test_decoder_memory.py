"""What a record leaves behind when it was decoded: nothing."""

from __future__ import annotations

import gc
from types import TracebackType

from streamydb.records import Rejection, decode

REFUSED = (
    b'{"id":"t","checks":[{"key":"a"}]}',
    b'{"id":"t","reads":[{"range":{"prefix":""}}]}',
    b'{"id":"t","call":{"procedure":"m.f","batch":{"id":1,"stream":"s","number":1,"depth":1}}}',
    b'{"id":"t","updates":[{"op":"add","key":"a","by":"x"}]}',
)


def test_a_refused_record_leaves_nothing_behind() -> None:
    """An exception that was made once kept the frames of all who had raised it."""

    def tracebacks() -> int:
        gc.collect()
        return sum(isinstance(each, TracebackType) for each in gc.get_objects())

    before = tracebacks()
    for _ in range(100):
        assert all(isinstance(decode(raw), Rejection) for raw in REFUSED)
    assert tracebacks() == before
