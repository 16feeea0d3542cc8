"""The texts of an execution, held against a list."""

from __future__ import annotations

import random

import pytest

from streamydb.frames.table import Ragged
from streamydb.txn_processor.run import ValueTexts
from tests.support.seeds import seeds


@pytest.mark.parametrize("seed", range(seeds(40, 20)))
def test_a_pool_has_all_texts_in_order(seed: int) -> None:
    rng = random.Random(f"text pool {seed}")

    def texts(n: int) -> list[bytes]:
        return [rng.randbytes(rng.choice([0, 1, 7, 300])) for _ in range(n)]

    known = texts(rng.choice([0, 3, 20]))
    granted = Ragged.of(known)
    if known and rng.random() < 0.5:  # a part of a larger column, as that of a grant may be
        granted, known = granted.part(1, len(known)), known[1:]
    pool, before = ValueTexts(granted), [*known]
    views = [(pool.whole(), [*known])]
    for _ in range(rng.randint(1, 30)):
        if rng.random() < 0.5:
            known += texts(1)
            assert pool.append(known[-1]) == len(known) - 1
        else:
            more = texts(rng.choice([0, 1, 5, 60]))
            part = Ragged.of([b"another", *more]).part(1, len(more) + 1)
            pool.extend(part)
            known += more
        assert len(pool) == len(known)
        if known:
            at = rng.randrange(len(known))
            assert pool[at] == known[at]
        if rng.random() < 0.3:
            views.append((pool.whole(), [*known]))
    views.append((pool.whole(), known))
    for view, wanted in views:
        assert [view[i] for i in range(len(view))] == wanted
        assert view.lengths().tolist() == list(map(len, wanted))
    assert (pool.granted, [granted[i] for i in range(len(granted))]) == (len(before), before)
