"""Background processes of a folder: start, find again, stop exactly those.

Started by `launcher`, with the output in `<folder>/logs/<name>.log`. `<folder>/run/<name>.json`
records id and birth (`launcher.Birth`), so that another process which was given the id since is
never mistaken for ours, nor signalled.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from multiprocessing import parent_process
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from streamydb.local.file_lock import file_lock, write_whole
from streamydb.local.fork_server import ForkError
from streamydb.local.launcher import (
    GRACE_S,
    OUTPUT,
    Birth,
    LocalProcess,
    ProcessError,
    birth_of,
    end,
    process_of,
    rotate,
)
from streamydb.records.formats import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from streamydb.local.fork_server import ForkServer


class ProcessRecord(msgspec.Struct, frozen=True):
    """The record of a process that was started here."""

    name: str
    pid: int
    created_s: float
    """Creation time as the operating system tells it, in seconds since 1970."""
    command: list[str]
    log: str
    started_ms: int
    since_boot: str = ""

    @property
    def birth(self) -> Birth:
        return Birth(self.created_s, self.since_boot)


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
    forks: ForkServer | None = None,
) -> ProcessRecord:
    """Start `command` in the background, apart from the caller's terminal and signals.

    Of several callers at once, one starts it; else its record would be replaced by another's.

    ``folder``: where `run/` and `logs/` are kept; created if absent. ``name``: the role of the
    process (`pipeline`, `sequencer`); one process a role and folder. ``environment``: variables to
    add to (or replace in) the caller's. ``forks``: forks it, if it can.
    Raises ProcessError: a process of this name runs already, or the program cannot be started;
    OSError: its log or its record cannot be written; then it does not run.
    """
    with _locked(folder, name):
        running = find(folder, name)
        if running is not None:
            raise ProcessError(
                f"{name} runs already (process {running.pid}), started by another command: run "
                "this one again when that has ended, or stop it first (`streamydb down`)"
            )
        log = log_path(folder, name)
        rotate(log)
        variables = {**(environment or {}), OUTPUT: str(log)}
        if forks is not None:
            with suppress(ForkError):
                return _forked(folder, name, command, variables, forks)
        return _started(folder, name, command, variables)


def _forked(
    folder: Path, name: str, command: Sequence[str], variables: Mapping[str, str], forks: ForkServer
) -> ProcessRecord:
    """Have a process forked.
    Raises ForkError: it cannot be; OSError: its record cannot be written; then it does not run.
    """
    pid, birth = forks.start(command, variables, log_path(folder, name)), None
    try:
        birth = birth_of(pid)
        return _recorded(folder, name, command, pid, birth)
    except BaseException:  # as in `_started`
        if birth is None or process_of(pid, birth) is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        raise


def _started(
    folder: Path, name: str, command: Sequence[str], variables: Mapping[str, str]
) -> ProcessRecord:
    """Start a process by its command."""
    log = log_path(folder, name)
    child = LocalProcess(name, command, log, environment=variables, append=True)
    try:
        record = _recorded(folder, name, command, child.pid, child.birth)
    except BaseException:  # a full disk, Ctrl-C: nobody could find it again
        child.kill()
        raise
    child.release()
    return record


def _recorded(
    folder: Path, name: str, command: Sequence[str], pid: int, birth: Birth
) -> ProcessRecord:
    record = ProcessRecord(
        name=name,
        pid=pid,
        created_s=birth.created_s,
        command=list(command),
        log=str(log_path(folder, name)),
        started_ms=time.time_ns() // 1_000_000,
        since_boot=birth.since_boot,
    )
    write_whole(record_path(folder, name), msgspec.json.encode(record))
    return record


def find(folder: Path, name: str) -> ProcessRecord | None:
    """The running process of this name that was started from this folder, or None."""
    record = read(folder, name)
    if record is None or process_of(record.pid, record.birth) is None:
        return None
    return record


def read(folder: Path, name: str) -> ProcessRecord | None:
    """The record of the last start, whether or not the process still runs."""
    try:
        return msgspec.json.decode(record_path(folder, name).read_bytes(), type=ProcessRecord)
    except (FileNotFoundError, *UNREADABLE):
        return None


def stop(
    folder: Path, name: str, grace_s: float = GRACE_S, note: Callable[[], None] = lambda: None
) -> bool:
    """Stop the process of this name and what is left of its group; False if none was running.

    `note` is called while it is waited for. See `launcher.end`.
    Raises ProcessError: it does not end.
    """
    record = read(folder, name)
    if record is None:
        record_path(folder, name).unlink(missing_ok=True)
        return False
    stopped = end(name, record.pid, record.birth, grace_s, note)
    with _locked(folder, name):
        if read(folder, name) == record:  # else another one was started since
            record_path(folder, name).unlink(missing_ok=True)
    return stopped


def strays(folder: Path) -> list[ProcessRecord]:
    """Return the processes that were started from this folder, or from one below it, and are no
    longer recorded there: somebody has deleted it while they ran.

    Each has the name of its log in its environment. Its children have that, too, but no session of
    their own. In a container the same name is another file's.
    """
    import psutil

    records = []
    for process in psutil.process_iter():
        try:
            log_name = process.environ().get(OUTPUT)
            if log_name is None or os.getsid(process.pid) != process.pid or _contained(process.pid):
                continue
            log = Path(process.cwd(), log_name)
            if log.is_relative_to(folder.absolute()) and _unknown(log, process.pid):
                birth, command = birth_of(process.pid), process.cmdline()
                records.append(ProcessRecord(
                    log.stem, process.pid, birth.created_s, command, str(log),
                    round(birth.created_s * 1000), birth.since_boot,
                ))  # fmt: skip
        except (psutil.Error, OSError):  # another user's, or gone
            continue
    return records


def _unknown(log: Path, pid: int) -> bool:
    """Return True if the folder of a log records no such process."""
    known = find(log.parent.parent, log.stem)
    return known is None or known.pid != pid


def _contained(pid: int) -> bool:
    """Return True if a process sees other files under the same names."""
    root = Path("/proc", str(pid), "root")
    return root.exists() and not root.samefile("/")


def log_path(folder: Path, name: str) -> Path:
    return folder / "logs" / f"{name}.log"


def record_path(folder: Path, name: str) -> Path:
    return folder / "run" / f"{name}.json"


def _locked(folder: Path, name: str) -> AbstractContextManager[None]:
    """Let nobody else change the record of the process of this name."""
    return file_lock(record_path(folder, name).with_suffix(".lock"))
