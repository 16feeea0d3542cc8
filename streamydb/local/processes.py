"""Background processes of one machine: start, find again, stop exactly those, read their logs.

A process is started in a session (and so a process group) of its own, with its output in
`<folder>/logs/<name>.log`. `<folder>/run/<name>.json` records its id *and* its creation time, so
that an id which the system has given to another process since is never mistaken for ours, nor
signalled.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from multiprocessing import parent_process
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from streamydb.local.file_lock import write_whole
from streamydb.records.formats import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import psutil

LOGS_KEPT_MAX = 5
"""How many logs of earlier starts stay beside the current one (`name.log.1` is the youngest)."""

CREATED_TOLERANCE_S = 0.05
"""Creation times that differ by no more than this many seconds are those of one process."""

GROUP_WAIT_S_MAX = 10.0
"""How long the rest of a process group may take to go after SIGKILL, in seconds."""

_LOOK_S = 0.2


class ProcessRecord(msgspec.Struct, frozen=True):
    """What is known of a process that was started here."""

    name: str
    pid: int
    created_s: float
    """Creation time as the operating system tells it, in seconds since 1970."""
    command: list[str]
    log: str
    started_ms: int


class ProcessError(RuntimeError):
    """A process could not be started or stopped; the message says which, why, and what to do."""


def end_with_parent() -> None:
    """End this worker of a process pool when the process that made the pool has ended.

    A pool whose maker was killed (SIGKILL) leaves its workers behind: each finishes its task, and
    then waits for the next one for ever. Give this function to the pool as its initializer.
    """
    parent = parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()


def start(
    folder: Path,
    name: str,
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
) -> ProcessRecord:
    """Start `command` in the background, apart from the caller's terminal and signals.

    Args:
        folder: where `run/` and `logs/` are kept; created if absent.
        name: the role of the process (`pipeline`, `sequencer`); one process a role and folder.
        command: program and arguments.
        environment: variables to add to (or replace in) the caller's.

    Raises:
        ProcessError: a process of this name runs already, or the program cannot be started.
    """
    running = find(folder, name)
    if running is not None:
        raise ProcessError(f"{name} runs already (process {running.pid}); stop it first")
    log = log_path(folder, name)
    rotate(log)
    try:
        child = _spawn(command, log, environment)
    except OSError as error:
        raise ProcessError(
            f"{name} could not be started: {command[0]}: {error.strerror or error}"
        ) from error
    record = ProcessRecord(
        name=name,
        pid=child.pid,
        created_s=_created_s(child.pid),
        command=list(command),
        log=str(log),
        started_ms=time.time_ns() // 1_000_000,
    )
    _write(folder, record)
    return record


def find(folder: Path, name: str) -> ProcessRecord | None:
    """The running process of this name that was started from this folder, or None."""
    record = read(folder, name)
    if record is None or _process(record) is None:
        return None
    return record


def read(folder: Path, name: str) -> ProcessRecord | None:
    """The record of the last start, whether or not the process still runs."""
    try:
        return msgspec.json.decode(record_path(folder, name).read_bytes(), type=ProcessRecord)
    except (FileNotFoundError, *UNREADABLE):
        return None


def stop(
    folder: Path, name: str, grace_s: float = 60.0, note: Callable[[], None] = lambda: None
) -> bool:
    """Stop the process of this name and what is left of its group; False if none was running.

    SIGTERM goes to the process itself, so that it can end its children in its own order; after
    `grace_s` seconds SIGKILL goes to the whole group. `note` is called while it is waited for.
    """
    record = read(folder, name)
    process = _process(record) if record is not None else None
    if record is None or process is None:
        record_path(folder, name).unlink(missing_ok=True)
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(record.pid, signal.SIGTERM)
    gone = _wait_gone(process, grace_s, note)
    _kill_group(record.pid)
    if not gone and not _wait_gone(process, GROUP_WAIT_S_MAX):
        raise ProcessError(
            f"{name} (process {record.pid}) did not end, not even by SIGKILL; "
            "it hangs in the operating system (often a lost disk): look at `ps -o stat,wchan`"
        )
    record_path(folder, name).unlink(missing_ok=True)
    return True


def tail(path: Path, lines_max: int = 20, bytes_max: int = 65_536) -> list[str]:
    """The last lines of a log; none if the file is absent."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - bytes_max))
            text = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return []
    return text.splitlines()[-lines_max:]


def rotate(log: Path) -> None:
    """Move `x.log` to `x.log.1`, `x.log.1` to `x.log.2`, ...; the oldest is dropped."""
    for number in range(LOGS_KEPT_MAX, 0, -1):
        source = log if number == 1 else log.with_name(f"{log.name}.{number - 1}")
        with contextlib.suppress(FileNotFoundError):
            source.replace(log.with_name(f"{log.name}.{number}"))


def log_path(folder: Path, name: str) -> Path:
    """Where the output of the process of this name goes."""
    return folder / "logs" / f"{name}.log"


def record_path(folder: Path, name: str) -> Path:
    """Where the process of this name is recorded."""
    return folder / "run" / f"{name}.json"


def _spawn(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None
) -> subprocess.Popen[bytes]:
    """Start `command` in a new session with its output in `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        return subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )


def _write(folder: Path, record: ProcessRecord) -> None:
    write_whole(record_path(folder, record.name), msgspec.json.encode(record))


def _created_s(pid: int) -> float:
    """Creation time of a process; 0 if it is gone already."""
    import psutil

    try:
        return float(psutil.Process(pid).create_time())
    except psutil.NoSuchProcess:
        return 0.0


def _process(record: ProcessRecord) -> psutil.Process | None:
    """The process of a record if it is still that one and alive."""
    import psutil

    try:
        process = psutil.Process(record.pid)
        same = abs(process.create_time() - record.created_s) <= CREATED_TOLERANCE_S
        alive = process.status() not in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
    except psutil.NoSuchProcess:
        return None
    return process if same and alive else None


def _wait_gone(
    process: psutil.Process, timeout_s: float, note: Callable[[], None] = lambda: None
) -> bool:
    """Wait until the process has ended (a child of ours is reaped)."""
    import psutil

    deadline_s = time.monotonic() + timeout_s
    while (left_s := deadline_s - time.monotonic()) > 0:
        try:
            process.wait(timeout=min(left_s, _LOOK_S))
        except psutil.TimeoutExpired:
            note()
        else:
            return True
    return False


def _kill_group(group: int) -> None:
    """End what is left of the group that the process led.

    The group id is the leader's process id; the system does not give it away while members live,
    and with no member left the call fails and does nothing.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
