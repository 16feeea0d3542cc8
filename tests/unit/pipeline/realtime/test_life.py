"""A start of the gear ends in an order in which nobody speaks to who has gone."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from streamydb.pipeline.realtime.life import GearLife


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
