"""The table of faults: every case has a test, and the page says what was recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.campaign.histories import Counted
from tests.campaign.rounds import Totals, Wanted
from tests.support.recording import Recorder
from tools import reliability

NODE = "tests/unit/frames/test_blocks.py::test_a_newer_format_stops_everything"


def test_every_case_has_a_test() -> None:
    marks = reliability.marked()
    assert {mark.number for mark in marks} == set(reliability.CASES)


def test_the_page_is_what_was_recorded() -> None:
    table = reliability.table(reliability.read())
    assert table in reliability.PAGE.read_text("utf-8"), "python -m tools.reliability --write"


def report(when: Any, outcome: Any, properties: list[tuple[str, object]]) -> pytest.TestReport:
    return pytest.TestReport(
        NODE, ("", 0, ""), {}, outcome, None, when, duration=1.0, user_properties=properties
    )


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    page, results = tmp_path / "page.md", tmp_path / "results.json"
    page.write_text(f"before\n{reliability.BEGIN}\n{reliability.END}\nafter\n")
    monkeypatch.setattr(reliability, "PAGE", page)
    monkeypatch.setattr(reliability, "RESULTS", results)
    monkeypatch.setattr(reliability, "LOCK", tmp_path / "lock")
    return results


def record(*outcomes: str) -> str:
    """Record a run of a test with three phases; the page after it."""
    recorder = Recorder()
    properties: list[tuple[str, object]] = [("fault", 21), ("injected", ("any", 2))]
    properties.append(("injected", ("any", 3)))
    for when, outcome in zip(("setup", "call", "teardown"), outcomes, strict=True):
        recorder.pytest_runtest_logreport(report(when, outcome, properties))
    return reliability.PAGE.read_text()


def row(page: str) -> list[str]:
    (found,) = [line for line in page.splitlines() if f"`{NODE.rpartition('::')[2]}`" in line]
    return [cell.strip() for cell in found.split("|")]


def test_a_run_goes_into_the_page(results: Path) -> None:
    page = record("passed", "passed", "passed")
    assert row(page)[1] == "21"
    assert row(page)[4:6] == ["5", "refused"]
    assert page.startswith("before\n")
    assert page.endswith("after\n")
    assert json.loads(results.read_text())["tests"][NODE]["outcome"] == "passed"
    assert row(record("passed", "failed", "passed"))[5] == "**failed**"
    page = record("skipped", "skipped", "passed")
    assert row(page)[4:6] == ["0", "skipped: this machine cannot do it"]


def test_tests_that_are_gone_are_forgotten(results: Path) -> None:
    gone = {"tests/unit/test_none.py::test_x": {"outcome": "passed"}}
    results.write_text(json.dumps({"tests": gone, "campaigns": []}))
    record("passed", "passed", "passed")
    assert list(json.loads(results.read_text())["tests"]) == [NODE]


def test_campaigns_are_added_up(results: Path) -> None:
    first, second = Totals(1, seconds=1800, transactions=10), Totals(2, seconds=3600, periods=4)
    first.faults["kill"] += 2
    second.faults["kill"] += 3

    def add(kept: dict[str, list[object]]) -> None:
        kept["campaigns"] += [first.record(), second.record()]

    reliability.update(add)
    page = reliability.PAGE.read_text()
    assert "| all | Campaign | random faults over a loaded database for 1.50 h" in page
    assert "| kill | 5 |" in page
    assert "failed" not in page
    second.outcome = "failed"
    reliability.update(add)
    assert "**1 of 4 failed** (not known yet)" in reliability.PAGE.read_text()
    assert results.exists()


def test_histories_are_added_up(results: Path) -> None:
    first, second = Counted(1, seconds=90, transactions=10), Counted(2, outcome="failed")
    for way in ("rest", "kafka"):
        first.histories[way] += 1
        first.operations[way] += 10_000
    first.faults["SIGKILL of Python workers"] += 7
    first.faults["SIGSTOP of the broker"] += 2
    second.operations["run"] += 3

    def add(kept: dict[str, list[object]]) -> None:
        stamp = {"date": "d", "commit": "c"}
        kept["histories"] = [{**stamp, **each.record()} for each in (first, second)]

    reliability.update(add)
    page = reliability.PAGE.read_text()
    outcome = "all explained; equal to the serial replay; 10 transactions, 1.5 min"
    assert f"| 1, 0, 1 | 20,000 | 0, 7, 2, 0 | {outcome} | d c |" in page
    assert "| 0, 0, 0 | 3 | 0, 0, 0, 0 | **failed** (not known yet), 0.0 min | d c |" in page
    assert "| 1, 0, 1: 2 in all | 20,000 | | | |" in page
    assert results.exists()


def test_a_campaign_that_fails_keeps_its_folder_and_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.campaign import __main__ as program

    def fail(folder: Path, _: Wanted, totals: Totals) -> None:
        (folder / "round-1").mkdir(parents=True)
        totals.outcome = "failed"
        raise AssertionError("not serial")

    monkeypatch.setattr(program, "campaign", fail)
    folder = tmp_path / "kept"
    words = ["campaign", "--seed", "7", "--minutes", "2", "--no-record", "--folder", str(folder)]
    monkeypatch.setattr("sys.argv", words)
    assert program.main() == 3
    said = capsys.readouterr()
    assert "FAILED with seed 7" in said.out
    assert f"Look into {folder}" in said.out
    assert "make campaign MINUTES=2 SEED=7" in said.out
    assert "not serial" in said.err
    assert (folder / "round-1").is_dir()
