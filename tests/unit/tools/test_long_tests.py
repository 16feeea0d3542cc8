"""Which long tests are run next."""

from __future__ import annotations

from pathlib import Path

from tools.long_tests import note, read, stalest

RUNS = {
    "old": {"date": "2026-01-01", "seconds": 50.0},
    "new": {"date": "2026-02-01", "seconds": 10.0},
    "newest": {"date": "2026-03-01", "seconds": 10.0},
}


def test_those_that_never_passed_come_first_then_the_oldest() -> None:
    tests = ["newest", "old", "never", "new"]
    assert stalest(tests, RUNS, 1_000) == ["never", "old", "new", "newest"]
    assert stalest(tests, RUNS, 115) == ["never", "old"]  # one that never ran is taken to last 60 s
    assert stalest(tests, RUNS, 120) == ["never", "old", "new"]


def test_one_is_run_even_if_it_takes_longer() -> None:
    assert stalest(["new", "old"], RUNS, 1) == ["old"]
    assert stalest([], RUNS, 1_000) == []


def test_what_has_passed_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "long.json"
    note("b", RUNS["old"], path)
    note("a", RUNS["new"], path)
    note("b", RUNS["newest"], path)
    runs = read(path)
    assert list(runs) == ["a", "b"]
    assert (runs["a"], runs["b"]) == (RUNS["new"], RUNS["newest"])
    assert stalest(["a", "b", "c"], runs, 1_000)[0] == "c"
