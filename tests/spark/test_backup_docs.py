"""The walk of docs/backup.md, line by line, with everything real."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "backup.md").read_text("utf-8")

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


def test_the_walk_works_as_it_is_written(tmp_path: Path) -> None:
    lines = re.findall(r"```sh walk\n(.*?)```", PAGE, re.DOTALL)[0].splitlines()
    environment = {**os.environ, "STREAMYDB_HOME": str(tmp_path / "home"), "COLUMNS": "200"}
    said = {}
    try:
        for number, line in enumerate(lines):
            words = shlex.split(line.replace("/backups", str(tmp_path)))[1:]
            if words[0] == "up":
                words += ["--master", "local[2]"]
            done = subprocess.run(
                [sys.executable, "-m", "streamydb.cli", *words],
                env=environment,
                timeout=300,
                capture_output=True,
                text=True,
                check=False,
            )
            said[number] = done.stdout + done.stderr
            assert done.returncode == 0, (line, said[number])
    finally:
        subprocess.run(
            [sys.executable, "-m", "streamydb.cli", "down", "--all"], env=environment, check=False
        )
    text = "\n".join(said.values())
    assert "yesterday is right after seq 2: " in text
    assert text.count("equal to the serial replay") == 2
    assert "bank has 2 shards from seq" in text
    assert "visits = 3" in text
    assert "visits = 4" in text
    assert "records can be deleted: run the same command with --yes" in text
    assert "records were deleted" in text
