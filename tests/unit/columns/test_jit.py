"""Kernels are cached on disk, and what another release has left there is no obstacle."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
MODULE = """
from typing import NamedTuple
import numpy as np
from streamydb.columns.jit import kernel

class {name}(NamedTuple):
    numbers: np.ndarray

@kernel
def total(of):
    return of.numbers.sum()

print(total({name}(np.arange(5))))
"""


def run(folder: Path, name: str) -> str:
    (folder / "kernels.py").write_text(MODULE.format(name=name))
    paths = f"{folder}{os.pathsep}{ROOT}"
    found = subprocess.run(
        [sys.executable, "-c", "import kernels"], check=True, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    return found.stdout.strip()


def test_a_named_tuple_may_have_another_name_than_in_the_cache(tmp_path: Path) -> None:
    assert run(tmp_path, "First") == "10"
    assert run(tmp_path, "Other") == "10"
