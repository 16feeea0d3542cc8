"""Confirmations against their definition, over outputs that come early, late, twice and equal."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from streamydb.columns.table import Ragged
from streamydb.pipeline.realtime.confirmations import Confirmations, output_hashes
from streamydb.pipeline.realtime.messages import Executed


def _group(seq: int, outputs: list[int]) -> Executed:
    return Executed(seq, seq, 0, np.array(outputs, np.uint64).tobytes(), b"resolved %d" % seq)


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(80))
def test_a_group_is_confirmed_when_all_before_it_and_of_it_were_seen(seed: int) -> None:
    dice = random.Random(seed)
    groups = [
        [dice.randrange(1, 12) for _ in range(dice.choice([0, 0, 1, 3]))] for _ in range(12)
    ]
    events: list[tuple[str, int]] = [("said", i) for i in range(len(groups))]
    seen = [output for outputs in groups for output in outputs]
    for output in dice.sample(seen, len(seen)):
        events.insert(dice.randint(0, len(events)), ("seen", output))
    said = iter(range(len(groups)))  # the worker's messages come in order
    confirmations, confirmed = Confirmations(), []
    told: list[int] = []
    come: list[int] = []
    for kind, output in events:
        if kind == "said":
            number = next(said)
            told.append(number)
            confirmed += confirmations.add(_group(number, groups[number]))
        else:
            come.append(output)
            confirmed += confirmations.see([output])
        assert [group.seq for group in confirmed] == _expected(groups[: len(told)], come)
    assert len(confirmations) == 0


def _expected(groups: list[list[int]], come: list[int]) -> list[int]:
    """The first groups all of whose outputs have come; one that came counts once."""
    left = Counter(come)
    for number, outputs in enumerate(groups):
        left.subtract(outputs)
        if min(left.values(), default=0) < 0:
            return list(range(number))
    return list(range(len(groups)))


def test_an_output_has_one_hash_in_each_process_and_another_in_each_topic() -> None:
    keys, values = Ragged.of([b"k", b"k", b""]), Ragged.of([b"v", b"w", b"v"])
    first = output_hashes(0, keys, values).tolist()
    assert first == output_hashes(0, keys, values).tolist()
    assert len({*first, *output_hashes(1, keys, values).tolist()}) == 6
