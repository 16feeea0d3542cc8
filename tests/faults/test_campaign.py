"""`make campaign`, for a minute: the faults rotate, the proofs hold, nothing is left running.

The seed has a standby, whose digests are compared, too.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.campaign.faults import FAULTS

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200), pytest.mark.long]


def test_a_campaign_of_a_minute(tmp_path: Path) -> None:
    folder = tmp_path / "campaign"
    command = [sys.executable, "-m", "tests.campaign", "--minutes", "1", "--seed", "9"]
    done = subprocess.run(
        [*command, "--folder", str(folder), "--no-record"],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert "is proved" in done.stdout
    assert "calm; verdict after" in done.stdout
    assert any(f"{fault.name} (" in done.stdout for fault in FAULTS)
    assert not folder.exists()
    left = [p for p in psutil.process_iter(["cmdline"]) if str(folder) in str(p.info["cmdline"])]
    assert left == []
    assert str(folder) not in Path("/proc/mounts").read_text()
