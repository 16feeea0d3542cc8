"""A whole database in processes of its own, started and ended by the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

__all__ = ["Stack"]


class Stack:
    """What `streamydb up` starts, in a home of its own, and `down` stops.

    Args:
        folder: where it lies.
        master: Spark's master.
        options: more options of `up`.

    Attributes:
        started: what `up --json` said: addresses, folders, the first result.
        said: what `up` told the user.
    """

    def __init__(self, folder: Path, master: str = "local[2]", options: Sequence[str] = ()) -> None:
        """Nothing is started yet."""
        self.home = folder / "home"
        self.started: dict[str, Any] = {}
        self.said = ""
        self._options = ["--master", master, *options]
        self._environment = {**os.environ, "COLUMNS": "200"}

    def __enter__(self) -> Self:
        """Start it."""
        begun = self.run("up", "--json", *self._options)
        if begun.returncode:
            self.run("down")
            raise AssertionError(begun.stderr)
        self.started, self.said = json.loads(begun.stdout), begun.stderr
        return self

    def __exit__(self, *_error: object) -> None:
        """Stop everything."""
        ended = self.run("down")
        assert ended.returncode == 0, ended.stderr
        assert self.run("status").returncode == 3

    @property
    def http(self) -> str:
        """The address of the facade."""
        return str(self.started["http"])

    @property
    def kafka(self) -> str:
        """The address of the database without the facade."""
        folder = Path(self.started["folder"]) / "read-model"
        return f"kafka://{self.started['bootstrap']}/bank?read_model={folder}"

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of `streamydb` on it."""
        command = [sys.executable, "-m", "streamydb.cli", *arguments, "--home", str(self.home)]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=300, check=False,
            env=self._environment,
        )  # fmt: skip
