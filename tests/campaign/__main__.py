"""`make campaign MINUTES=60 [SEED=1]`: random faults over a loaded database.

Its totals go into bench/results/reliability.json and docs/reliability.md, those of a campaign that
fails too; then its folder is kept, and the exit code is 3.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any, Final

from tests.campaign.rounds import Totals, Wanted, campaign, tell
from tools import reliability

_GEARS: Final = {"some": 0.5, "all": 1.0, "none": 0.0}
"""Which share of the rounds has a real-time gear beside the micro-batch gear."""


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0, help="of load [20]")
    parser.add_argument("--seed", type=int, help="of all choices [by chance]")
    parser.add_argument("--folder", type=Path, help="where the database lies [a new one]")
    parser.add_argument("--only", default="", help="faults whose name contains this")
    parser.add_argument(
        "--gears", choices=_GEARS, default="some", help="rounds with a real-time gear [some]"
    )
    parser.add_argument("--no-record", action="store_true", help="leave the table as it is")
    return parser.parse_args()


def main() -> int:
    """Run a campaign; 0, or 3 if the database did not survive."""
    asked = arguments()
    for number in (signal.SIGINT, signal.SIGTERM):  # everything is ended and unmounted
        signal.signal(number, signal.default_int_handler)
    os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
    seed = secrets.randbelow(1_000_000) if asked.seed is None else asked.seed
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="streamydb-campaign-"))
    tell(f"campaign of {asked.minutes:g} minutes, seed {seed}, in {folder}")
    totals = Totals(seed)
    try:
        campaign(folder, Wanted(asked.minutes, asked.only, _GEARS[asked.gears]), totals)
    except Exception:  # noqa: BLE001 - whatever it is, the database did not survive it
        traceback.print_exc()
        tell(
            f"FAILED with seed {seed} after {totals.periods} periods. Look into {folder}: "
            "pipeline.log, standby.log, facade-*.log, read-model-*.log, home/broker/server.log; "
            "`streamydb histories check` judges the folder history. "
            f"Once more: make campaign MINUTES={asked.minutes:g} SEED={seed}"
        )
    else:
        shutil.rmtree(folder, ignore_errors=True)
        tell(f"passed: {totals.record()}")
    if not asked.no_record:
        reliability.update(lambda results: _append(results, totals))
    return 0 if totals.outcome == "passed" else 3


def _append(results: dict[str, Any], totals: Totals) -> None:
    results["campaigns"].append(totals.record())


if __name__ == "__main__":
    sys.exit(main())
