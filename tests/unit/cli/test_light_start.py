"""The command line starts without the large packages: `make` runs it before they are there."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import sys
for name in ("pyarrow", "pandas", "pyspark"):
    sys.modules[name] = None
import {module}
"""


@pytest.mark.parametrize(
    "module", ["streamydb.cli", "simulator.main", "streamydb.read_model.warmup"]
)
def test_it_is_imported_without_pyarrow_pandas_and_pyspark(module: str) -> None:
    code = CODE.format(module=module)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
