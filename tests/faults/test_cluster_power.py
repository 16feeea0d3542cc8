"""A loss of power of one broker of three: its folder falls back to what it has synced."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.bank import transfers
from tests.support.clustered import Clustered, all_in_sync
from tests.support.faulty import load, progressed, results_of
from tests.support.machine import has_compiler
from tests.support.power import Power

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not has_compiler(), reason="the shim needs a C compiler"),
]

_BETWEEN = (20, 400)
"""After so many more transactions a broker loses its power."""


class PoweredCluster(Clustered):
    """A database on three brokers without --sync, each of which may lose its power."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._power = Power(folder / "power")

    def start_brokers(self) -> None:
        """Start all that do not run."""
        with self._power.preloaded():
            self.cluster.start()

    def lose_power(self, number: int) -> int:
        """Lose the power of a broker; return how many bytes of its folder are gone."""
        broker = self.brokers[number]
        broker.kill()
        return self._power.lose(broker.home / "broker" / "data")


def lose_and_compare(folder: Path, rounds: int, seed: int, injected: Callable[..., None]) -> None:
    """Let brokers lose their power under load, at moments that the seed draws; judge all."""
    chance = random.Random(seed)
    with PoweredCluster(folder) as db:
        driver = db.processes()[0].pid
        lost = 0
        with load(db, seed, refusals=True):
            for number in range(rounds):
                progressed(db, chance.randint(*_BETWEEN))
                told = results_of(db)
                leads = db.leader()
                others = sorted({*db.brokers} - {leads})
                lost += db.lose_power(leads if number % 2 == 0 else chance.choice(others))
                injected(1)
                db.start_brokers()
                all_in_sync(db)
                assert results_of(db)[: len(told)] == told
        assert lost > 0, "no broker has lost anything: this tests nothing"
        db.load(transfers(20, seed=90))
        assert db.assert_serial().ok
        assert db.processes()[0].pid == driver


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.fault(
    51, "power loss of one broker of three, the log's leader and then another, under load",
    "every verdict that was acknowledged is there, without --sync; equal to the serial replay",
)  # fmt: skip
def test_one_of_three_brokers_loses_its_power(
    tmp_path: Path, injected: Callable[..., None]
) -> None:
    lose_and_compare(tmp_path, 2, 1, injected)


@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.fault(
    51, "power loss of one broker of three, 20 times at random moments, under load",
    "every verdict that was acknowledged is there, without --sync; equal to the serial replay",
)  # fmt: skip
def test_one_of_three_brokers_loses_its_power_twenty_times(
    tmp_path: Path, injected: Callable[..., None]
) -> None:
    lose_and_compare(tmp_path, 20, 2, injected)
