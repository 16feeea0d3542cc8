"""`check` on streams and follow-ups: what is missing, extra, different, or there twice."""

from __future__ import annotations

import pytest

from streamydb.records import Rejection, decode
from streamydb.verify.check import CheckReport, Output
from streamydb.verify.check.workflows import Workflows
from tests.support.workflows import VOTER, Log


def judged(
    *, drop: int | None = None, change: int | None = None, twice: bool = False, forged: bytes = b""
) -> CheckReport:
    """A vote that went through the graph, judged after something was done to the records."""
    log = Log(VOTER)
    call = {"phone": 1, "who": "ann"}
    log.call("voter.vote", ["phone/1", "$flows/voter"], **call)
    log.settle()
    report = CheckReport("db", transactions=len(log.records))
    workflows = Workflows(report)
    workflows.expect(log.outputs)
    judges = {"streams": workflows.stream, "transactions": workflows.follow_up}
    found = [out for out in log.outputs if out.topic in judges]
    for place, out in enumerate(found * (2 if twice else 1)):
        if place != drop:
            value = (out.value or b"").replace(b"ann", b"eve" if place == change else b"ann")
            judges[out.topic](Output(0, place, out.key, value))
    if forged:
        workflows.follow_up(Output(0, 99, None, forged))
    workflows.finish()
    report.judge()
    return report


def test_all_of_it() -> None:
    report = judged(twice=True)
    assert report.ok
    assert (report.streams.matched, report.streams.duplicates) == (2, 2)
    assert (report.follow_ups.matched, report.follow_ups.duplicates) == (3, 3)


def test_one_that_is_missing() -> None:
    for place in range(5):
        report = judged(drop=place)
        assert not report.ok
        assert report.streams.missing + report.follow_ups.missing == 1
        assert report.differences[0].kind == "missing"


def test_one_with_other_bytes() -> None:
    report = judged(change=0)
    assert (report.ok, report.streams.differing) == (False, 1)


FORGED = (
    b'{"id":"$flow/%s","call":{"procedure":"voter.count","args":{},"keys":["$flows/voter"],'
    b'"batch":{"id":2,"stream":"votes","number":9,"depth":1}}}'
)


def test_one_that_nobody_made() -> None:
    report = judged(forged=FORGED % b"2/9")
    assert (report.ok, report.follow_ups.extra) == (False, 1)
    assert judged(forged=FORGED % b"99/1").follow_ups.later == 1
    assert judged(forged=b'{"id":"other"}').ok


@pytest.mark.parametrize(
    "record",
    [
        b'{"id":"$flow/2/9","updates":[]}', b'{"id":"$flow/2/1","call":{}}', b'{"id":"$flow/',
        b'{"id":"$flow/99999/1"}', FORGED % b"02/9", FORGED % (b"9" * 5000 + b"/1"),
        (FORGED % b"2/9").replace(b"$flows/voter", b"other"),
    ],
)  # fmt: skip
def test_a_record_that_is_rejected_is_no_follow_up(record: bytes) -> None:
    """Whoever may append may append it; a bad record harms nobody."""
    assert isinstance(decode(record), Rejection)
    report = judged(forged=record)
    assert (report.ok, report.follow_ups.extra, report.follow_ups.later) == (True, 0, 0)
