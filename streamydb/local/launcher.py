"""The one launcher of local processes: start, wait until ready, stop, find again by id.

A process has a session (and so a process group) of its own, so that a Ctrl-C at the terminal does
not reach it, and its output goes to a log. It is stopped by SIGTERM to itself, so that it can end
its children in its own order; what is left of its group after a grace is killed.

A process id alone proves nothing, for the system gives it to another process sooner or later. So
what outlives its starter is known by its id *and* by when it began (`Birth`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import psutil

LOGS_KEPT_MAX: Final = 5
"""How many logs of earlier starts stay beside the current one (`name.log.1` is the youngest)."""

LINES_SHOWN: Final = 15

LOG_BYTES_MAX: Final = 64 << 20  # how long a log may get while its process runs
OUTPUT: Final = "STREAMYDB_OUTPUT"
"""Names the log of a process that is to keep it short itself, as nobody else watches it."""

_STANDARD_OUTPUT: Final = 1
_SHORTEN_S: Final = 60.0


def module_command(module: str, **options: object) -> list[str]:
    """Return the command that runs a module of ours with these options; None: it is left out."""
    words = [sys.executable, "-m", module]
    for name, value in options.items():
        if value is not None:
            words += ["--" + name.replace("_", "-"), str(value)]
    return words


def rotate(log: Path, first: int = 0) -> None:
    """Move `x.log` to `x.log.1`, `x.log.1` to `x.log.2`, ...; the oldest is dropped.

    ``first``: the number of the first one that is moved.
    """
    for number in range(LOGS_KEPT_MAX, first, -1):
        source = log if number == 1 else log.with_name(f"{log.name}.{number - 1}")
        with contextlib.suppress(FileNotFoundError):
            source.replace(log.with_name(f"{log.name}.{number}"))


def keep_short() -> None:
    """Keep the log of this process short from now on, if whoever started it has asked for that."""
    log_name = os.environ.get(OUTPUT)
    if log_name is not None:
        name = "streamydb-output"
        threading.Thread(target=_keep_short, args=[Path(log_name)], name=name, daemon=True).start()


def _keep_short(log: Path) -> None:
    while True:
        time.sleep(_SHORTEN_S)
        with contextlib.suppress(OSError):  # a full disk, say; it is tried again
            shorten(log)


def shorten(log: Path, bytes_max: int = LOG_BYTES_MAX) -> None:
    """Copy the log of this process to `x.log.1` and empty it, if it is too long.

    Whoever writes to it goes on, since all append. What is written between the two steps is lost.
    Raises OSError: it cannot be copied.
    """
    output = os.fstat(_STANDARD_OUTPUT)
    if output.st_size <= bytes_max or not os.path.samestat(output, log.stat()):
        return
    rotate(log, first=1)
    shutil.copyfile(log, log.with_name(f"{log.name}.1"))
    os.truncate(log, 0)


def tail(path: Path, lines_max: int = 20) -> list[str]:
    """Return the last lines of a log; none if the file is absent."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 65_536))
            text = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return []
    return text.splitlines()[-lines_max:]


def end_of_log(log: Path, lines_max: int = LINES_SHOWN) -> str:
    """Return the last lines of a log, indented, under the log's name."""
    lines = tail(log, lines_max)
    body = "\n".join(f"  | {line}" for line in lines) if lines else "  | (empty)"
    return f"The end of {log}:\n{body}"


T = TypeVar("T")

CREATED_TOLERANCE_S: Final = 0.05
"""Creation times that differ by no more than this many seconds are those of one process."""

_PROC: Final = Path("/proc")
_START_TICKS: Final = 19
"""Index of a process's start among the fields of its `stat` that follow its name."""

GRACE_S: Final = 60.0  # how long a process has to end by itself, in seconds
GROUP_WAIT_S_MAX: Final = 10.0  # how long a process may take to go after SIGKILL, in seconds
_LOOK_S: Final = 0.02
_POLL_S: Final = 0.05


class ProcessError(RuntimeError):
    """A process could not be started or stopped; the message says which, why, and what to do."""


class Birth(NamedTuple):
    """The beginning of a process, which tells it from others that had the same id.

    Attributes:
        created_s: its creation time as the system tells it, in seconds since 1970. On Linux it
            moves when the clock is set.
        since_boot: the id of the machine's boot, and ticks from then on, which do not move; empty
            on other systems.
    """

    created_s: float
    since_boot: str = ""

    def matches(self, other: Birth) -> bool:
        """Return True if both are of one process, given that the ids are the same."""
        if self.since_boot and other.since_boot:
            return self.since_boot == other.since_boot
        return abs(self.created_s - other.created_s) <= CREATED_TOLERANCE_S


class LocalProcess:
    """A process that was started here; leaving the block stops it.

        with LocalProcess("facade", command, folder / "facade.log") as facade:
            facade.wait_until(lambda: answers(url), 60)

    Args:
        name: its role, for messages.
        command: program and arguments.
        log: where its output goes, and what it says of errors.
        environment: variables to add to (or replace in) the caller's.
        folder: where it runs; the caller's if None.
        user: whom it runs as; the caller if None.
        append: keep what the log holds.

    Attributes:
        pid: its id, and that of its group.
        birth: when it began.

    Raises ProcessError: the program cannot be started.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        user: str | None = None,
        append: bool = False,
    ) -> None:
        self.name = name
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        try:
            with log.open("ab" if append else "wb") as output:
                self._popen = subprocess.Popen(
                    list(command), stdin=subprocess.DEVNULL, stdout=output,
                    stderr=subprocess.STDOUT, env={**os.environ, **(environment or {})},
                    cwd=folder, user=user, start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            reason = error.strerror or error
            raise ProcessError(f"{name} could not be started: {command[0]}: {reason}") from error
        self.pid = self._popen.pid
        try:
            self.birth = birth_of(self.pid)
        except BaseException:  # Ctrl-C: nobody would know of it
            self.kill()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    @property
    def alive(self) -> bool:
        return self._popen.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Its exit code, the negative number of the signal that ended it, or None: it runs."""
        return self._popen.poll()

    def wait_until(self, ready: Callable[[], bool], timeout_s: float) -> None:
        """Wait until the process is ready.
        Raises ProcessError: it ended, or the time is up; with the end of its log.
        """
        in_time = wait_until(lambda: not self.alive or ready(), timeout_s)
        if not self.alive:
            raise ProcessError(f"{self.name} ended ({self.exit_code}).\n{end_of_log(self.log)}")
        if not in_time:
            raise ProcessError(
                f"{self.name} is not ready after {timeout_s:.0f} s.\n{end_of_log(self.log)}"
            )

    def family(self) -> list[psutil.Process]:
        """Return the process and all below it, of whatever group; none if it has ended."""
        import psutil

        try:
            root = psutil.Process(self.pid)
            return [root, *root.children(recursive=True)] if self.alive else []
        except psutil.NoSuchProcess:
            return []

    def send(self, number: int) -> None:
        """Send a signal to the process alone; harmless when it has ended."""
        self._popen.send_signal(number)

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait until it has ended; return its exit code.
        Raises subprocess.TimeoutExpired: the time is up.
        """
        return self._popen.wait(timeout_s)

    def stop(self, grace_s: float = GRACE_S, number: int = signal.SIGTERM) -> int:
        """End it by a signal, after `grace_s` seconds by SIGKILL; return its exit code."""
        if self.alive:
            self.send(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.wait(grace_s)
            _kill_group(self.pid)
        return self._gone()

    def kill(self) -> None:
        """End it and its group at once (SIGKILL); harmless when it has ended."""
        if self.alive:
            _kill_group(self.pid)
        self._gone()

    def kill_family(self) -> int:
        """End it and all below it at once, of whatever group; return how many there were."""
        import psutil

        family = self.family()
        for each in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        self._gone()
        return len(family)

    def release(self) -> None:
        """Let it go on after this process; then its id and birth are what is known."""
        self._popen.returncode = 0  # or else Popen warns of a child that was forgotten

    def _gone(self) -> int:
        """Wait for the end of what was killed; return its exit code."""
        try:
            return self.wait(GROUP_WAIT_S_MAX)
        except subprocess.TimeoutExpired:
            raise _hanging(self.name, self.pid) from None


def process_of(pid: int, birth: Birth) -> psutil.Process | None:
    """Return the live process with this id that began then, None if it has ended."""
    import psutil

    try:
        process = psutil.Process(pid)
        same = birth.matches(birth_of(pid))
        alive = process.status() not in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
    except psutil.NoSuchProcess:
        return None
    return process if same and alive else None


def end(
    name: str,
    pid: int,
    birth: Birth,
    grace_s: float = GRACE_S,
    note: Callable[[], None] = lambda: None,
) -> bool:
    """Stop a process that was started anywhere, and what is left of its group.

    ``birth``: when it began; a process that merely has the same id is left alone. ``grace_s``: how
    long it has after SIGTERM, in seconds. ``note``: called while it is waited for.

    Returns:
        Whether there was anything to stop.

    Raises ProcessError: it does not end, or is another user's.
    """
    process = process_of(pid, birth)
    if process is None:
        return False
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        pass
    except PermissionError:
        raise ProcessError(
            f"{name} (process {pid}) is another user's: stop it as that user, or as root"
        ) from None
    gone = _wait_gone(process, grace_s, note)
    _kill_group(pid)
    if not gone and not _wait_gone(process, GROUP_WAIT_S_MAX):
        raise _hanging(name, pid)
    return True


def wait_until(condition: Callable[[], T], timeout_s: float, poll_s: float = _POLL_S) -> T:
    """Wait until a condition is true, or the time is up; return its last value."""
    deadline_s = time.monotonic() + timeout_s
    while not (value := condition()) and time.monotonic() <= deadline_s:
        time.sleep(poll_s)
    return value


def _hanging(name: str, pid: int) -> ProcessError:
    return ProcessError(
        f"{name} (process {pid}) did not end, not even by SIGKILL; "
        "it hangs in the operating system (often a lost disk): look at `ps -o stat,wchan`"
    )


def birth_of(pid: int) -> Birth:
    """Return when a process began; in 1970, if it is gone already."""
    import psutil

    try:
        return Birth(float(psutil.Process(pid).create_time()), _since_boot(pid))
    except psutil.NoSuchProcess:
        return Birth(0.0)


def _since_boot(pid: int) -> str:
    """Linux's id of this boot and the ticks from then to the start of a process; else empty."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text("ascii").strip()
        stat = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return ""
    return f"{boot} {int(stat.rpartition(b')')[2].split()[_START_TICKS])}"


def _wait_gone(
    process: psutil.Process, timeout_s: float, note: Callable[[], None] = lambda: None
) -> bool:
    """Wait until the process has ended (a child of ours is reaped).

    One that its parent has not reaped has ended, too: in a container that may never happen.
    """
    import psutil

    deadline_s, birth = time.monotonic() + timeout_s, birth_of(process.pid)
    while (left_s := deadline_s - time.monotonic()) > 0:
        try:
            process.wait(timeout=min(left_s, _LOOK_S))
        except psutil.TimeoutExpired:
            if process_of(process.pid, birth) is None:
                return True
            note()
        else:
            return True
    return False


def _kill_group(group: int) -> None:
    """End what is left of the group that a process led.

    The group id is the leader's process id; the system does not give it away while members live,
    and with no member left the call fails and does nothing.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
