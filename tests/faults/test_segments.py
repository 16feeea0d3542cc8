"""Values that settle into segments, on real Spark: who settles them dies at each step of it.

Each test ends with a serial replay of the log.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from streamydb.testing.database import Database, wait_for
from tests.support.bank import transfers
from tests.support.faulty import changed, load, progressed
from tests.support.shared import OnShared

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

SETTLING = """
import os, random, signal
from pathlib import Path
from streamydb.local import segment_files, shard_files

shard_files._RECENT_PAGES_MAX, shard_files._WHOLE_SHARE = 0, 1 << 60
segment_files._SEGMENT_PAGES = 1
deaths, chance = Path({deaths!r}), random.SystemRandom()

def may_die(step):
    if not (deaths / step).exists() and chance.random() < 0.3:
        (deaths / step).touch()
        os.kill(os.getpid(), signal.SIGKILL)

def deadly(name):
    sound = getattr(segment_files.Settling, name)
    def call(self, *rest):
        may_die("before " + name)
        made = sound(self, *rest)
        may_die("after " + name)
        return made
    setattr(segment_files.Settling, name, call)

for name in {steps!r}:
    deadly(name)
"""
"""All values settle after each plan. A worker dies once before and once behind each step."""

STEPS = ("_write", "run", "finish")


@pytest.mark.fault(
    2, "SIGKILL of the worker at each step of the settling of its values",
    "segments that no transaction names are removed; equal to the serial replay",
)  # fmt: skip
@pytest.mark.fault(1, "SIGKILL of driver, JVM and workers where all values lie in segments")
@pytest.mark.long
@pytest.mark.parametrize("gear", ["micro-batch", "both"])
def test_who_settles_values_dies(
    tmp_path: Path,
    database_on_shared: Callable[..., OnShared],
    gear: str,
    injected: Callable[..., None],
) -> None:
    deaths = tmp_path / "deaths"
    deaths.mkdir()
    code = SETTLING.format(deaths=str(deaths), steps=STEPS)
    with changed(tmp_path, code), database_on_shared(options=["--gear", gear]) as db:
        with load(db, 0):
            wait_for(lambda: len(list(deaths.iterdir())) == 2 * len(STEPS), "each death", 240)
            injected(2 * len(STEPS), 2)
            progressed(db, 100)
            db.kill_pipeline()
            injected(1, 1)
        left = segments(db)
        assert left
        db.start_pipeline()
        with load(db, 1):
            progressed(db, 100)
        assert not left & segments(db)
        for file in segments(db):
            file.unlink()
        db.load(transfers(200, seed=2))
        assert db.assert_serial().ok


def segments(db: Database) -> set[Path]:
    """Return the files that hold settled values."""
    return {path for path in (db.folder / "local").rglob("segments/*") if path.is_file()}
