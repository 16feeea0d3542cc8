"""The programs of examples/: what each says that it prints, and what it does print."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.support.sources import PYTHONPATH

__all__ = ["FOLDER", "NAMES", "assert_prints_what_it_says", "promised", "run"]

FOLDER: Final = Path(__file__).resolve().parents[2] / "examples"
NAMES: Final = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "common")
"""All of them; the folders and `common` are parts of these, or have tests of their own."""


def promised(name: str) -> str:
    """What a program's docstring says that it prints; `...` stands for anything."""
    text = (FOLDER / f"{name}.py").read_text("utf-8")
    block = re.split(r"It\s+prints:\n", text.split('"""')[1])[1]
    return "".join(f"{line.removeprefix('    ')}\n" for line in block.strip("\n").splitlines())


def run(name: str, *arguments: str, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a program as its docstring says, with more variables in its environment."""
    return subprocess.run(
        [sys.executable, str(FOLDER / f"{name}.py"), *arguments],
        capture_output=True, text=True, timeout=280, check=False,
        env={**os.environ, "PYTHONPATH": PYTHONPATH, "PYTHONDONTWRITEBYTECODE": "1",
             **variables},
    )  # fmt: skip


def assert_prints_what_it_says(name: str, *arguments: str, variables: dict[str, str]) -> None:
    """Run a program, and compare what it prints with what its docstring says."""
    done = run(name, *arguments, variables=variables)
    assert done.returncode == 0, done.stderr
    agrees = doctest.OutputChecker().check_output(promised(name), done.stdout, doctest.ELLIPSIS)
    assert agrees, f"{name} says that it prints\n{promised(name)}\nand printed\n{done.stdout}"
