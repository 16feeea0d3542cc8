"""What the warm-up compiles: every kernel of the read model that Python calls."""

from __future__ import annotations

import subprocess
import sys

_COLD = """
import importlib, pkgutil
import streamydb.read_model as room
from streamydb.read_model.warmup import warm_up
warm_up()
for found in pkgutil.iter_modules(room.__path__, "streamydb.read_model."):
    if found.name.endswith("__main__"):
        continue
    module = importlib.import_module(found.name)
    for name, each in vars(module).items():
        own = getattr(each, "__module__", None) == found.name
        leaf = own and getattr(each, "targetoptions", {}).get("_nrt") is False
        if own and hasattr(each, "signatures") and not (leaf or each.signatures):
            print(f"{found.name}.{name}")
"""


def test_every_kernel_is_compiled() -> None:
    """By a process of its own: this one has compiled others."""
    done = subprocess.run(
        [sys.executable, "-c", _COLD], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr
