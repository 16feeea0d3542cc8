"""A start of the gear wakes who waits for it, and ends in an order in which nobody is spoken to who
has gone.
"""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamydb.pipeline.realtime.confirmations import Announcements, ResolvedGroups
from streamydb.pipeline.realtime.life import GearLife
from streamydb.pipeline.realtime.messages import Executed
from tests.support.seeds import seeds


def test_the_coordinator_ends_before_the_socket_on_which_it_tells_roles(tmp_path: Path) -> None:
    ended: list[str] = []
    life: Any = GearLife.__new__(GearLife)
    life._folder = tmp_path / "gear"
    life._channel = SimpleNamespace(close=lambda: ended.append("channel"))
    life._coordinator = SimpleNamespace(stop=lambda: ended.append("coordinator"))
    life._query = SimpleNamespace(give_up=lambda: ended.append("query"))
    life._reader = SimpleNamespace(stop=lambda: ended.append("reader"))
    life.close()
    assert ended == ["coordinator", "channel", "query", "reader"]


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(40)))
def test_the_first_group_after_a_quiet_time_wakes_who_waits_and_no_other_does(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice, now_s = random.Random(seed), 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    life: Any = GearLife.__new__(GearLife)
    life._changed, life._lock = threading.Event(), threading.Lock()
    life._groups, life._announcements, life._reader = ResolvedGroups(), Announcements(), None
    life._announcer = SimpleNamespace(announce=lambda _: None)
    life._executed_s = 0.0
    for number in range(1, 30):
        passed_s = dice.choice([0.0, 0.01, 1.9, 2.1, 60.0])
        now_s += passed_s
        was_quiet = number == 1 or passed_s > 2.0
        assert life.is_quiet() is was_quiet
        life._changed.clear()
        life._add(Executed(number, number, 0, b"", None, 0, False, 0))
        assert life._changed.is_set() is was_quiet
        assert not life.is_quiet()
