"""The keys that a client finds for a procedure are those that it touches, whatever it touches."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from streamydb.client import Client, Options
from streamydb.procedures.modules import compile_module
from streamydb.testing.clients import MemoryHost
from tests.support.seeds import seeds

MAZE = """
def walk(db, start, steps):
    seen = []
    places = [start]
    for step in range(steps):
        if not places:
            break
        place = places.pop()
        here = db.get(place)
        seen.append(here)
        if here is None:
            db.put(place + "+", step)
        elif isinstance(here, list):
            for each in here:
                if db.exists(each) or step % 3 == 0:
                    places.append(each)
        elif here % 2:
            db.add(place, 2)
        else:
            places.append(db.get("n" + str(here), start))
    return seen
"""


class Recorder:
    """`db` in plain Python: notes what is touched, and whether it is written."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = dict(state)
        self.touched: dict[str, bool] = {}

    def get(self, key: str, default: Any = None) -> Any:
        self.touched.setdefault(key, False)
        return self.state.get(key, default)

    def exists(self, key: str) -> bool:
        return self.get(key) is not None

    def put(self, key: str, value: Any) -> None:
        self.state[key], self.touched[key] = value, True

    def add(self, key: str, by: int) -> None:
        self.put(key, self.state[key] + by)


@pytest.fixture(scope="module")
def client() -> Iterator[tuple[MemoryHost, Client]]:
    with MemoryHost() as host:
        host.database.modules.put(MAZE.encode())
        module = compile_module("maze", MAZE.encode())
        with host.connect(options=Options(modules=host.database.modules)) as connected:
            connected.transaction(deploy=module.record)
            yield host, connected


@pytest.mark.parametrize("seed", range(seeds(40, 13)))
def test_what_is_found_is_what_is_touched(client: tuple[MemoryHost, Client], seed: int) -> None:
    host, connected = client
    dice = random.Random(f"maze {seed}")
    names = [f"{seed}/{number}" for number in range(dice.randrange(3, 30))]
    state: dict[str, Any] = {}
    for name in dice.sample(names, dice.randrange(len(names))):
        some = dice.sample(names, dice.randrange(3))
        state[name] = dice.choice([some, some, dice.randrange(200)])
    build = connected.atomic()
    for name, value in state.items():
        build.put(name, value)
    build.put("other", seed).commit()
    space: dict[str, Any] = {}
    exec(MAZE, space)  # noqa: S102 - as plain Python
    plain = Recorder(state)
    steps = dice.randrange(1, 60)
    expected = space["walk"](plain, names[0], steps)
    assert connected.call("maze.walk", start=names[0], steps=steps).returned == expected
    sent = json.loads(host.database.log.records[-1])["call"]
    written = {key for key, writes in plain.touched.items() if writes}
    assert set(sent.get("keys", [])) == written
    assert set(sent.get("reads", [])) == plain.touched.keys() - written
    assert dict(connected.read(written)) == {key: plain.state[key] for key in written}
