"""The table of seeds: slices are joined, the next one goes on, the page says what was run."""

from __future__ import annotations

from typing import Any

from tools import seeds


def piece(first: int, last: int, **other: Any) -> dict[str, Any]:
    given = {"kind": "one", "commit": "c", "date": "d", "failed": [], "transactions": 10}
    return {**given, "first": first, "last": last, "seconds": 1.0, **other}


def test_slices_of_one_commit_are_joined_and_the_next_goes_on() -> None:
    assert seeds.next_seed([], "one") == seeds.FIRST
    slices = seeds.added([], piece(10_000, 10_009))
    slices = seeds.added(slices, piece(10_010, 10_019, failed=[10_012]))
    slices = seeds.added(slices, piece(10_000, 10_009, kind="pair"))
    slices = seeds.added(slices, piece(10_020, 10_029, commit="later"))
    assert [(each["first"], each["last"]) for each in slices] == [
        (10_000, 10_019), (10_000, 10_009), (10_020, 10_029),
    ]  # fmt: skip
    assert slices[0]["failed"] == [10_012]
    assert slices[0]["transactions"] == 20
    assert seeds.next_seed(slices, "one") == 10_030
    assert seeds.next_seed(slices, "pair") == 10_010
    rows = seeds.table(slices).splitlines()
    assert rows[-2].startswith("| all | 40 |")
    assert any("| 10000 to 10019 | 20 | 10012 | d c |" in row for row in rows)


def test_the_page_is_what_was_run() -> None:
    wanted = "python -m tools.seeds --write"
    assert seeds.table(seeds.read()) in seeds.PAGE.read_text("utf-8"), wanted


def test_one_that_failed_stays_on_the_page_and_may_hold_later() -> None:
    slices = [piece(10_000, 10_009, failed=[10_002, 10_005]), piece(10_010, 10_019)]
    tried = seeds.tried_again(slices, "e later", lambda _, seed: ["no"] * (seed == 10_005))
    assert "| 10002 (holds: e later), 10005 | d c |" in seeds.table(tried)
    assert tried[1] == slices[1]
    worse = seeds.tried_again(tried, "f last", lambda _, seed: ["no"] * (seed == 10_002))
    assert "| 10002, 10005 (holds: f last) | d c |" in seeds.table(worse)
