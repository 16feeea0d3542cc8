"""The client for threads is the one for coroutines, as `tools/blocking.py` writes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.blocking import blocking, same, sources, written

HINT = "run `python -m tools.blocking` after a change of streamydb/client/awaiting"


@pytest.mark.parametrize("source", sources(), ids=lambda path: path.name)
def test_a_file_for_threads_says_what_the_one_for_coroutines_says(source: Path) -> None:
    assert same(written(source).read_text("utf-8"), blocking(source.read_text("utf-8"))), HINT


def test_there_are_no_others() -> None:
    made = {written(source) for source in sources()}
    assert made == set(written(sources()[0]).parent.glob("*.py"))


def test_a_difference_is_seen() -> None:
    text = written(sources()[1]).read_text("utf-8")
    assert same(text, text)
    assert not same(text, text.replace("_lifetime", "_life"))


def test_nothing_is_left_of_coroutines() -> None:
    for source in sources():
        for word in ("await ", "async ", "Async", "asyncio", "coroutine"):
            assert word not in blocking(source.read_text("utf-8")), (source.name, word)
