"""A whole database in 2 GB of memory, under load.

Where systemd runs, the kernel bounds it: `systemd-run` starts `up` in a control group (cgroup) of
that size without swap, and a process that needs more is killed. Elsewhere nobody bounds it, and
what all processes take together is looked at every second instead; unchanged pages of files do not
count, as the kernel drops them when a group is full.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from bench.idle import ALL, Sampler, Stage, loaded, running_database
from streamydb.cli.phases import Phases
from streamydb.local import processes
from streamydb.local.broker import find_broker
from streamydb.local.folder import FACADE, PIPELINE, READ_MODEL, DatabaseFolder
from streamydb.testing.database import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]

LIMIT_MB = 2_000


def bounds() -> list[str]:
    """Return a command that bounds the memory of what it starts; empty: there is none here."""
    for who in ([], ["--user"]):
        command = [
            "systemd-run", *who, "--scope", "--quiet", "-p", f"MemoryMax={LIMIT_MB}000000",
            "-p", "MemorySwapMax=0", "--",
        ]  # fmt: skip
        if shutil.which(command[0]):
            tried = subprocess.run([*command, "true"], capture_output=True, check=False)
            if tried.returncode == 0:
                return command
    return []


def test_a_small_database_carries_a_load_in_two_gigabytes(tmp_path: Path) -> None:
    bound = bounds()
    options = [] if bound else ["--small"]  # within bounds it finds by itself that it must be small
    place = DatabaseFolder(tmp_path, "bank")
    stage = Stage(seconds=40.0, backlog=100_000, accounts=20_000)
    with running_database(tmp_path, Phases(), options, bound) as facts:
        roles = (PIPELINE, READ_MODEL, FACADE)
        begun = [processes.find(place.folder, role) for role in roles]
        pipeline = place.pipeline()
        assert pipeline is not None
        assert "--small" in pipeline.command
        sampler = Sampler(tmp_path)
        sampler.start()
        found = loaded(facts, stage, lambda _: None)
        sampler.end()
        assert found["transactions"] > stage.backlog
        assert [processes.find(place.folder, role) for role in roles] == begun
        assert find_broker(tmp_path) is not None
        log = processes.log_path(place.folder, PIPELINE)
        wait_for(lambda: "nothing comes: a heap of" in log.read_text(), "the heap given back", 60)
    if not bound:
        most = sampler.most[ALL]
        assert 100 < most["mb"] - most["files_mb"] < LIMIT_MB, sampler.most
