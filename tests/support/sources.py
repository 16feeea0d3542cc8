"""Where the programs that tests start find the packages of this checkout."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

__all__ = ["PYTHONPATH", "ROOT"]

ROOT: Final = Path(__file__).resolve().parents[2]
PYTHONPATH: Final = os.pathsep.join([str(ROOT), str(ROOT / "layers")])
"""Of both distributions: the engine's, and the layers'."""
