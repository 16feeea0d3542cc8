"""`check` on a database whose oldest results were deleted by the topic's retention."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from streamydb.records.expiry import removal_number
from streamydb.records.rulings import NO_RULINGS
from streamydb.verify.check import CheckOptions, CheckReport, Comparison, Expected, Output
from streamydb.verify.check.report import DIFFERENCES_MAX
from streamydb.verify.check.run import _expect, _fault, _fill_in
from streamydb.verify.check.workflows import Workflows
from streamydb.verify.oracle.core import Oracle
from streamydb.verify.oracle.order import Ordered
from tests.support.strange import STRANGE

COUNT = 100
EXPIRED = 60


def judged(expired: int, lost: set[tuple[str, int]]) -> tuple[bool, CheckReport]:
    """A check that finds no results of the first seqs, and no outputs that were lost.

    ``expired``: how many records the topic of the results has deleted.
    """
    oracle, expected, report = Oracle("db"), Expected(), CheckReport("db")
    found = []
    for offset in range(COUNT):
        put = {"op": "put", "key": f"k{offset % 7}", "value": offset}
        raw = msgspec.json.encode({"id": str(offset), "updates": [put]})
        outputs = oracle.apply(raw, 0, offset, 7)
        _expect(expected, 0, offset, outputs)
        found += [(each, offset + 1) for each in outputs if (each.topic, offset + 1) not in lost]
    comparison = Comparison(expected, report, Workflows(report))
    comparison.expired = expired
    judges = {"results": comparison.result, "changes": comparison.change}
    for (topic, key, value), seq in found:
        if topic == "changes" or seq > EXPIRED:
            judges[topic](Output(0, seq, key, value))
    complete = comparison.complete
    comparison.finish({key.encode(): value for key, value in oracle.state.items()})
    report.judge()
    return complete, report


@pytest.mark.parametrize("expired", [EXPIRED, EXPIRED + 5])
def test_nobody_waits_for_what_was_deleted(expired: int) -> None:
    """After a crash some results are there twice, so more records may be gone than results."""
    complete, report = judged(expired, set())
    assert (complete, report.ok, report.differences) == (True, True, [])
    assert (report.results.expired, report.results.missing) == (EXPIRED, 0)


def test_what_is_really_missing_is_named() -> None:
    assert EXPIRED > DIFFERENCES_MAX
    complete, report = judged(EXPIRED, {("changes", COUNT), ("results", 80)})
    assert (complete, report.ok) == (False, False)
    assert (report.results.expired, report.results.missing) == (EXPIRED, 1)
    named = {(each.kind, each.topic, each.seq) for each in report.differences}
    assert named == {
        ("missing", "changes", COUNT),
        ("value", "changes", COUNT),
        ("missing", "results", 80),
    }


@pytest.mark.parametrize("value", [*STRANGE, b'{"code":"internal"}'])
@pytest.mark.parametrize("key", [None, b"k"])
@pytest.mark.parametrize("topic", ["results", "changes", "deadletters", "streams"])
def test_what_something_else_has_written_is_named(
    topic: str, key: bytes | None, value: bytes | None
) -> None:
    report = CheckReport("db")
    workflows = Workflows(report)
    comparison = Comparison(Expected(), report, workflows)
    judges = {
        "results": comparison.result,
        "changes": comparison.change,
        "deadletters": comparison.dead_letter,
        "streams": workflows.stream,
    }
    assert _fault(value) is None
    judges[topic](Output(3, 7, key, value))
    report.caught_up = True
    report.judge()
    assert not report.ok
    (named,) = report.differences
    assert (named.topic, named.partition, named.offset) == (topic, 3, 7)


@pytest.mark.parametrize(
    ("lost", "index"), [("ended", removal_number(b"ended")), ("first", 1), ("second", 2)]
)
def test_a_missing_change_is_told_with_its_own_bytes(lost: str, index: int) -> None:
    """Also beside a removal by time, which is told before the transaction's own changes."""
    ending = {"op": "put", "key": "ended", "value": 1, "ttl_ms": 5}
    puts = [{"op": "put", "key": key, "value": key} for key in ("first", "second")]
    log = [
        Ordered(ts_ms, 0, offset, msgspec.json.encode({"id": str(offset), "updates": updates}))
        for offset, (ts_ms, updates) in enumerate([(7, [ending]), (100, puts)])
    ]
    oracle, expected, report = Oracle("db"), Expected(), CheckReport("db")
    found = []
    for ts_ms, partition, offset, value in log:
        outputs = oracle.apply(value, partition, offset, ts_ms)
        _expect(expected, partition, offset, outputs)
        found += [out for out in outputs if offset == 0 or out.key != lost.encode()]
    comparison = Comparison(expected, report, Workflows(report))
    for number, (topic, key, value) in enumerate(found):
        judge = {"results": comparison.result, "changes": comparison.change}[topic]
        judge(Output(0, number, key, value))
    comparison.finish({key.encode(): value for key, value in oracle.state.items()})
    source: Any = SimpleNamespace(ordered=lambda: iter([log]))
    _fill_in(CheckOptions({}, "db"), source, NO_RULINGS, comparison.evidence.wanted)
    (missing,) = [each for each in report.differences if each.kind == "missing"]
    assert (missing.topic, missing.seq, missing.index) == ("changes", 2, index)
    assert missing.message.endswith(f"(key {lost!r})")
    assert f'"total_order":{index}' in (missing.expected or "")
