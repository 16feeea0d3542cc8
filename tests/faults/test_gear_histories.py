"""Histories through REST and straight on Kafka while two gears shift and are killed.

`make histories` does the same for 10,000 operations each.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200), pytest.mark.long]


@pytest.mark.fault(
    48, "histories through REST and on Kafka while the gears shift under load and are killed",
    "histories explained; equal to the serial replay",
)  # fmt: skip
def test_histories_over_two_gears(tmp_path: Path, injected: Callable[..., None]) -> None:
    folder = tmp_path / "histories"
    command = [
        sys.executable, "-m", "tests.campaign.histories", "--histories", "2", "--at-once", "2",
        "--operations", "1500", "--seed", "2", "--folder", str(folder), "--no-record",
    ]  # fmt: skip
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert re.search(r"'histories': {'kafka': 1, 'rest': 1}", done.stdout), done.stdout[-1000:]
    (count,) = re.findall(r"'shifts': (\d+)", done.stdout)
    assert int(count) > 0
    injected(int(count))
