"""Blobs in Spark's state: what is put is there, and no part of what it has replaced."""

from __future__ import annotations

import random
from typing import Any

import pytest

from streamydb.pipeline import hosts
from tests.support.seeds import seeds

_Key = tuple[str, int]


class MapState:
    """A MapState of Spark."""

    def __init__(self) -> None:
        self.data: dict[_Key, bytes] = {}

    def getValue(self, key: _Key) -> tuple[bytes] | None:  # noqa: N802 - Spark's name, as below
        return (self.data[key],) if key in self.data else None

    def updateValue(self, key: _Key, value: tuple[bytes]) -> None:  # noqa: N802
        self.data[key] = value[0]

    def removeKey(self, key: _Key) -> None:  # noqa: N802
        self.data.pop(key, None)

    def containsKey(self, key: _Key) -> bool:  # noqa: N802
        return key in self.data


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(20, 8)))
def test_a_blob_leaves_no_part_behind(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "_PART_BYTES", 4)
    rng = random.Random(f"blobs {seed}")
    state, known = MapState(), dict[str, bytes]()
    for _ in range(30):
        blobs = hosts.SparkBlobs(state)  # a step of a shard has one of its own
        read = set[str]()
        for _ in range(rng.randrange(4)):
            name: Any = rng.choice(["state", "values/1"])
            seen = name in read or rng.random() < 0.5
            if seen:
                assert blobs.get(name) == known.get(name)
                read.add(name)
            if seen and rng.random() < 0.7:
                for _ in range(rng.randint(1, 2)):
                    known[name] = rng.randbytes(rng.randrange(30))
                    blobs.put(name, known[name])
            else:
                known.pop(name, None)
                blobs.delete(name)
    parts = {(name, n) for name, data in known.items() for n in range(max(1, -(-len(data) // 4)))}
    assert set(state.data) == parts


def test_what_is_removed_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark packs what Python reads as text: a shard would read all that it has merged twice."""
    monkeypatch.setattr(hosts, "_PART_BYTES", 4)
    state = MapState()
    for name in ("read", "unread"):
        hosts.SparkBlobs(state).put(name, b"0123456789")
    blobs = hosts.SparkBlobs(state)
    assert blobs.get("read") == b"0123456789"
    assert blobs.get("absent") is None

    def fail(_: _Key) -> None:
        raise AssertionError("it is read")

    monkeypatch.setattr(state, "getValue", fail)
    for name in ("read", "unread", "absent", "never there"):
        blobs.delete(name)
    assert state.data == {}
