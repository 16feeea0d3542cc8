"""Programs of the checkout, called from the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streamydb.cli import app, mounted


@pytest.mark.parametrize("name", ["bench", "demo", "sim", "histories"])
def test_a_wheel_has_no_tools_of_the_checkout_and_says_so(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounted, "CHECKOUT", tmp_path)
    done = CliRunner().invoke(app, [name, "--help"])
    assert done.exit_code != 0
    assert "in a checkout" in done.output + str(done.exception)


def test_a_checkout_has_them_wherever_one_stands(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "streamydb.cli", "bench", "--help"]
    environment = {**os.environ, "PYTHONPATH": str(mounted.CHECKOUT)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "latency" in done.stdout
