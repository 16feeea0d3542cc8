"""A loss of power: pages that the broker has not synced are gone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest

from streamydb.kafka import create
from streamydb.kafka.admin import set_sync
from streamydb.testing.database import Database
from tests.support.bank import transfers
from tests.support.faulty import fails, load, progressed, results_of
from tests.support.machine import has_compiler
from tests.support.power import Power

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900), pytest.mark.long]

needs_compiler = pytest.mark.skipif(not has_compiler(), reason="the shim needs a C compiler")


class Powered(Database):
    """A database on a broker that may lose its power; ``sync``: as of `create --sync`."""

    def __init__(self, folder: Path, *, sync: bool, **options: Any) -> None:
        super().__init__(folder, **options)
        self._sync = sync
        self._power = Power(folder / "power")

    def __enter__(self) -> Self:
        self.start_broker()
        client = self.settings.client_config()
        create(client, self.name)
        set_sync(client, self.name, on=self._sync)
        self.start_pipeline()
        return self

    def start_broker(self) -> None:
        """Start the broker, whose power may be lost."""
        with self._power.preloaded():
            self.broker.start()

    def lose_power(self) -> int:
        """Lose the power of the whole machine; return how many bytes of the broker are gone."""
        self.broker.kill()
        self.kill_pipeline()
        return self._power.lose(self.folder / "home" / "broker" / "data")


@needs_compiler
@pytest.mark.fault(
    51, "power loss of the only broker with --sync, under load: what was not synced is gone",
    "every verdict that was acknowledged is there; equal to the serial replay",
)  # fmt: skip
@pytest.mark.parametrize("options", [[], ["--gear", "both"]], ids=["one-gear", "both-gears"])
def test_no_acknowledged_verdict_is_lost(
    tmp_path: Path, options: list[str], injected: Callable[..., None]
) -> None:
    with Powered(tmp_path, sync=True, options=options) as db:
        for number in range(2):
            with load(db, 1 + number):
                progressed(db, 300)
                told = results_of(db)
            db.lose_power()
            injected(1)
            db.start_broker()
            db.start_pipeline()
            assert results_of(db)[: len(told)] == told
            db.load(transfers(20, seed=90 + number))
            assert db.assert_serial().ok


@needs_compiler
@pytest.mark.fault(
    51, "power loss of the only broker without --sync", "the start says that the log's end is lost"
)
def test_without_sync_the_start_says_what_is_lost(
    tmp_path: Path, injected: Callable[..., None]
) -> None:
    with Powered(tmp_path, sync=False) as db:
        with load(db, 1):
            progressed(db, 300)
        assert db.lose_power() > 0
        injected(1)
        db.start_broker()
        assert "lost" in fails(db)
