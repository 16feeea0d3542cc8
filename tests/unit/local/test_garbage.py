"""The collector is away where it shall be, and back afterwards."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator

import pytest

from streamydb.local.own_process import keep_all, no_collection, often_collected


@pytest.fixture
def switch() -> Iterator[Callable[[], None]]:
    """Turns the collector off; afterwards it is as it was."""
    was = gc.isenabled()
    yield gc.disable
    if was:
        gc.enable()


def test_it_is_back_when_the_body_is_over() -> None:
    assert gc.isenabled()
    with no_collection():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_what_was_off_stays_off(switch: Callable[[], None]) -> None:
    switch()
    with no_collection():
        pass
    assert not gc.isenabled()


def test_cycles_go_within_moments_and_python_looks_at_all_objects_no_more() -> None:
    class Cycle:
        def __init__(self) -> None:
            self.own = self

    before, gone = gc.get_threshold(), threading.Event()
    with often_collected(0.01):
        assert gc.get_threshold()[2] > 1000 * before[2]
        made = Cycle()
        weakref.finalize(made, gone.set)
        del made
        assert gone.wait(30)
    assert gc.get_threshold() == before


def test_what_is_kept_is_not_walked_through_again() -> None:
    mine: list[object] = [[] for _ in range(1000)]
    before = gc.get_freeze_count()
    keep_all()
    assert gc.get_freeze_count() >= before + len(mine)
    assert not any(each is mine for each in gc.get_objects())
