"""What a measurement was made on."""

from __future__ import annotations

import platform
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, Final

import psutil
import pyspark

from bench.engine import cores

__all__ = ["machine", "stolen_s"]

_TURNS: Final = 1_000_000
_FILES: Final = 200


def machine() -> dict[str, Any]:
    """Processor, memory, versions; how busy the machine is (load of the last minute), how fast.

    A virtual machine's speed varies with its neighbours, and nothing else tells: so `loop_ns` is
    what one turn of a Python loop that adds takes now, in nanoseconds (the median of five). Nor is
    the disk always alike: `file_us` is what it takes to make an empty file in the folder for
    temporary files, in microseconds (the median of two hundred).
    """
    return {
        "cores": cores(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "processor": _processor(),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "pyspark": pyspark.__version__,
        "load": round(psutil.getloadavg()[0], 1),
        "loop_ns": round(median(_loop_ns() for _ in range(5)), 1),
        "file_us": round(_file_us(), 1),
    }


def stolen_s() -> tuple[float, float]:
    """Processor time that the host gave to others, and all there was, of all cores, in seconds."""
    times = psutil.cpu_times()
    return getattr(times, "steal", 0.0), sum(times)


def _loop_ns() -> float:
    begun, total = time.perf_counter_ns(), 0
    for number in range(_TURNS):
        total += number
    return (time.perf_counter_ns() - begun) / _TURNS


def _file_us() -> float:
    took: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(_FILES):
            begun = time.perf_counter_ns()
            (Path(folder) / str(number)).touch()
            took.append(time.perf_counter_ns() - begun)
    return median(took) / 1000


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123 - a kernel's file
            names = [line.partition(":")[2].strip() for line in file if "model name" in line]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()
