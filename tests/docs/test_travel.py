"""The table of docs/architecture.md lists the stops of a transfer as a trace finds them."""

from __future__ import annotations

from collections import Counter

from tools.travel import BEGIN, END, PAGE, stops, table

STOPS_MAX = {
    "client": 8,
    "facade": 14,
    "parse": 5,
    "shard": 12,
    "execute": 9,
    "feedback": 2,
    "verdict back": 5,
}
"""How many files a reader stays in, at most, by stage."""


def test_the_table_is_what_a_trace_finds() -> None:
    found = stops()
    page = PAGE.read_text("utf-8")
    shown = page[page.index(BEGIN) : page.index(END) + len(END)]
    assert shown == table(found), "python -m tools.travel writes it"


def test_a_transfer_stays_in_few_files() -> None:
    counts = Counter(stop.stage for stop in stops())
    assert counts.keys() == STOPS_MAX.keys()
    assert all(counts[stage] <= most for stage, most in STOPS_MAX.items()), counts
