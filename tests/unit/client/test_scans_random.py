"""Functions that scan and write, while others change keys inside the range and outside."""

from __future__ import annotations

import random
from itertools import islice
from typing import Any

import pytest

from streamydb.client import Options
from streamydb.testing.clients import MemoryHost
from tests.support.seeds import seeds

LETTERS = "ab\x7fé\ud7ff\U0010ffff"
NAMES = [first + second for first in LETTERS for second in ("", *LETTERS)]


def change(client: Any, dice: random.Random) -> list[str]:
    """Change some keys; their names."""
    names = dice.sample(NAMES, dice.randint(0, 2))
    for name in names:
        if dice.random() < 0.4:
            client.delete(name)
        else:
            client.put(name, dice.randint(1, 9))
    return names


def drawn(dice: random.Random) -> dict[str, Any]:
    """Bounds that have an end."""
    first, last = dice.choices(NAMES, k=2)
    bounds = [{"prefix": dice.choice(NAMES)}, {"start": first, "end": last}]
    bounds += [{"prefix": last[0], "end": last}]
    if first < LETTERS[-1]:  # nothing is behind the last letter
        bounds += [{"prefix": first[0], "start": first}]
    return {**dice.choice(bounds), "limit": dice.choice([None, None, 1, 2, 5])}


def inside(name: str, wanted: dict[str, Any]) -> bool:
    """Return True if a key is in the range."""
    start, end = wanted.get("start") or "", wanted.get("end")
    return (
        name.startswith(wanted.get("prefix", "")) and start <= name and (end is None or name < end)
    )


@pytest.mark.parametrize("seed", range(seeds(20, 8)))
def test_what_a_function_saw_of_a_range_holds_when_it_commits(seed: int) -> None:
    dice = random.Random(f"scans {seed}")
    with MemoryHost() as host:
        client = host.connect(options=Options(page_entries=dice.choice([1, 2, 100])))
        other = host.connect()
        for name in dice.sample(NAMES, dice.randint(0, 12)):
            other.put(name, 0)
        for number in range(8):
            wanted, most = drawn(dice), dice.choice([0, 1, 3, None])
            calls: list[list[tuple[str, int]]] = []
            changed: list[str] = []

            def scan(view: Any, wanted: Any = wanted, most: int | None = most) -> Any:
                return [(each.key, each.version) for each in islice(view.scan(**wanted), most)]

            def function(view: Any, number: int = number) -> None:
                seen = scan(view)
                if not calls:  # noqa: B023
                    changed.extend(change(other, dice))  # noqa: B023
                calls.append(seen)  # noqa: B023
                view.put("A", number)

            client.run(function)
            before = client.get("A") == number and client.run(scan)
            assert before == calls[-1], (wanted, most)
            if not any(inside(name, wanted) for name in changed):
                assert len(calls) == 1, (wanted, changed)


@pytest.mark.parametrize("seed", range(seeds(15, 6)))
def test_a_function_scans_its_own_writes(seed: int) -> None:
    dice = random.Random(f"own writes {seed}")
    with MemoryHost() as host:
        client = host.connect(options=Options(page_entries=dice.choice([1, 2, 100])))
        for name in dice.sample(NAMES, dice.randint(0, 12)):
            client.put(name, 0)
        expected = {entry.key: entry.value for entry in client.scan()}

        def function(view: Any) -> None:
            for number in range(12):
                for name in dice.sample(NAMES, dice.randint(0, 3)):
                    if dice.random() < 0.4:
                        view.delete(name)
                        expected.pop(name, None)
                    else:
                        view.put(name, number)
                        expected[name] = number
                wanted = drawn(dice)
                keys = sorted(name for name in expected if inside(name, wanted))
                found = [(each.key, each.value) for each in view.scan(**wanted)]
                assert found == [(key, expected[key]) for key in keys[: wanted["limit"]]], wanted

        client.run(function)
        assert {entry.key: entry.value for entry in client.scan()} == expected
