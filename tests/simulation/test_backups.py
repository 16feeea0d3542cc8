"""Backups, trims, resizes and restores of random logs, with deaths between all steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.kept_log import Kept
from tests.support.seeds import seeds
from tests.support.states import goes_on

SEEDS = seeds(10, 2)


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_whatever_is_kept_trimmed_divided_and_restored_is_what_the_log_says(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept(seed, tmp_path, monkeypatch)
    start = None
    for _ in range(kept.dice.randint(3, 6)):
        kept.grow()
        kept.move()
        kept.dice.choice([kept.back_up, kept.back_up, kept.trim])()
        kept.lose_tail()
        if kept.dice.random() < 0.3:
            start = kept.resize()
    if not kept.folder.exists():
        kept.back_up()
    kept.trim()
    kept.restore()
    kept.fork()
    start = kept.resize() if start is None or kept.dice.random() < 0.5 else kept.rebuild(tmp_path)
    if start is not None:
        goes_on(start, kept.made, kept.outputs, kept.lows(), kept.rulings)
