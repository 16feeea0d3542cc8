"""The keys of a scan are those whose UTF-8 keeps its bounds."""

from __future__ import annotations

import random

import pytest

from streamydb.records.ranges import ScanRange
from tests.support.seeds import seeds

LETTERS = "ab~\x7fé\uffff😀"


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(40)))
def test_a_key_is_in_a_scan_if_its_utf_8_keeps_all_bounds(seed: int) -> None:
    dice = random.Random(seed)

    def text(least: int = 1) -> str:
        return "".join(dice.choices(LETTERS, k=dice.randint(least, 3)))

    def bound() -> str | None:
        return text() if dice.random() < 0.5 else None

    for _ in range(50):
        keys = ScanRange(text(0) if dice.random() < 0.3 else "", bound(), bound(), bound())
        start, end, after = (each and each.encode() for each in (keys.start, keys.end, keys.after))
        for key in (text() for _ in range(20)):
            data = key.encode()
            within = data.startswith(keys.prefix.encode()) and (not start or start <= data)
            before_end, behind = not end or data < end, not after or data > after
            assert keys.has(key) is (within and before_end and behind)
        named = keys.texts()
        assert named.get("prefix", "") == keys.prefix
        assert (named.get("start"), named.get("end")) == (keys.start, keys.end)
