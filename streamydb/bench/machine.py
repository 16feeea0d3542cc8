"""What a measurement was made on."""

from __future__ import annotations

import platform
from typing import Any

import psutil
import pyspark

from streamydb.bench.engine import cores

__all__ = ["machine"]


def machine() -> dict[str, Any]:
    """Processor, memory, versions, and how busy the machine is now (load of the last minute)."""
    return {
        "cores": cores(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "processor": _processor(),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "pyspark": pyspark.__version__,
        "load": round(psutil.getloadavg()[0], 1),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123 - a kernel's file
            names = [line.partition(":")[2].strip() for line in file if "model name" in line]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()
