"""The record of a broker that outlives the process that started it: `<home>/broker.json`.

A process id alone proves nothing (the system gives it to another process sooner or later), so a
process is known by its id and its creation time together.
"""

from __future__ import annotations

import json
import os
import signal
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from streamydb.local.file_lock import write_whole

__all__ = [
    "BrokerRecord",
    "end_group",
    "read_record",
    "remove_record",
    "same_process",
    "write_record",
]

_NAME = "broker.json"
_CREATED_TOLERANCE_S = 0.05


@dataclass(frozen=True, slots=True)
class BrokerRecord:
    """A started broker.

    Attributes:
        pid: its process id, which is its process group's id too.
        created: when that process was created, in seconds since 1970, as psutil tells it.
        bootstrap: the address for clients, "127.0.0.1:<port>".
        log: its log file.
    """

    pid: int
    created: float
    bootstrap: str
    log: str


def write_record(home: Path, record: BrokerRecord) -> None:
    """Write `<home>/broker.json`."""
    write_whole(home / _NAME, json.dumps(asdict(record), indent=1).encode() + b"\n")


def read_record(home: Path) -> BrokerRecord | None:
    """Return the record of `home`, None if there is none or it cannot be read."""
    try:
        return BrokerRecord(**json.loads((home / _NAME).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def remove_record(home: Path) -> None:
    """Remove the record of `home`, if there is one."""
    (home / _NAME).unlink(missing_ok=True)


def same_process(pid: int, created: float) -> psutil.Process | None:
    """Return the live process with this id and creation time, None if it has ended."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        same = abs(process.create_time() - created) < _CREATED_TOLERANCE_S
    except psutil.NoSuchProcess:
        return None
    return process if same else None


def end_group(pid: int, created: float, timeout_s: float) -> bool:
    """End the process and its own process group: SIGTERM, after `timeout_s` seconds SIGKILL.

    Returns whether there was anything to end. A process that merely has the same id is left alone.
    """
    process = same_process(pid, created)
    if process is None:
        return False
    _signal(process, signal.SIGTERM)
    try:
        process.wait(timeout_s)
    except psutil.TimeoutExpired:
        _signal(process, signal.SIGKILL)
        process.wait(10)
    return True


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    try:
        if os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
    except (ProcessLookupError, psutil.NoSuchProcess):
        return
