"""`verify` calls a constraint valid if, and only if, all data keep it, whatever they are."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from streamydb.client import Client, ClientError, verification
from streamydb.client.verification import verify
from streamydb.constraints.core import parse
from streamydb.records import canonical
from streamydb.testing.clients import MemoryHost
from tests.support.seeds import seeds

RULES: list[dict[str, Any]] = [
    {"unique": "$.email"}, {"unique": "$.email"}, {"unique": "$"}, {"type": "object"},
    {"schema": {"properties": {"age": {"maximum": 3}}}},
    {"unique": "$.email", "schema": {"properties": {"age": {"maximum": 3}}}},
    {"keys": {"max": 3}}, {"keys": {"max": 2, "each": "/"}},
]  # fmt: skip


def draw(rng: random.Random, kinds: int) -> Any:
    """A value; few ``kinds`` make doubles likely."""
    if rng.random() < 0.1:
        return rng.choice([None, rng.randrange(kinds)])
    return {"email": rng.choice([None, *range(kinds)]), "age": rng.choice([1, 2, 3, 3, 3, 4])}


def write(rng: random.Random, client: Client, kinds: int, times: int) -> None:
    for _ in range(times):
        key, value = f"{rng.choice('uuv')}/{rng.randrange(6)}", draw(rng, kinds)
        try:
            if value is None:
                client.delete(key)
            else:
                client.put(key, value)
        except ClientError:
            pass  # a constraint forbids it


@pytest.mark.parametrize("seed", range(seeds(15)))
def test_valid_is_what_all_data_keep(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(f"verify {seed}")
    kinds = rng.choice([3, 20, 200])
    together = random.Random(f"verify together {seed}").choice([1, 2, 3, 64])
    monkeypatch.setattr(verification, "_TOGETHER", together)
    with MemoryHost() as host, host.connect(rng.choice(["http", "direct"])) as client:
        write(rng, client, kinds, rng.randrange(10))
        declared = {"name": "c", "prefix": "u/", **rng.choice(RULES)}
        client.transaction(constrain={"declare": declared})
        write(rng, client, kinds, rng.randrange(6))
        report = verify(client, "c")
        (rule,) = parse(canonical(client.get("$constraints"))).all
        there = {entry.key: entry.value for entry in client.scan("u/")}
        wrong = {key for key, value in there.items() if rule.fault(value) is not None}
        index = {key: rule.index_key(canonical(value)) for key, value in there.items()}
        times = Counter(name for name in index.values() if name is not None)
        double = {key for key, name in index.items() if name is not None and times[name] > 1}
        crowded = {"u/"} if rule.each is None and len(there) > (rule.keys_max or 6) else set()
        assert (report.valid == ["c"]) is not bool(wrong or double or crowded)
        assert report.keys == len(there)
        named = {found.key for found in report.violations}
        assert wrong | crowded <= named <= wrong | double | crowded
        assert (rule.valid is not None) is (report.valid == ["c"])
        if report.valid:
            for key, name in index.items():
                assert name is None or client.get(name) == key
