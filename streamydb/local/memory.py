"""The memory that the processes of a database take on this machine.

It is the proportional set size: of a page that several processes share, each has its part. So the
parts add up to what would be free again if all of them ended. Only Linux tells it; elsewhere it is
the resident set size, which counts such a page for each process.
"""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import psutil

BROKER: Final = "broker"
JVM: Final = "Spark's JVM"
WORKERS: Final = "Python workers"

_LINUX: Final = sys.platform == "linux"
_SIZE: Final = re.compile(r"^(Pss|Pss_Dirty):\s+(\d+) kB$", re.MULTILINE)


class PartMemory(msgspec.Struct, frozen=True):
    """The memory of one part of a database.

    Attributes:
        part: `broker`, the name of a process that `up` starts (`pipeline`, `read-model`, ...), or
            what a pipeline starts: its JVM, its Python workers.
        processes: how many processes it has.
        mb: what they take together, in MB (10^6 bytes).
        files_mb: of it the unchanged pages of files, which the system drops when others need
            memory.
    """

    part: str
    processes: int
    mb: float
    files_mb: float


class _ProcessMemory(NamedTuple):
    """The memory of one process, in bytes."""

    all_bytes: int
    file_bytes: int


def memory_of(home: Path, folder: Path) -> list[PartMemory]:
    """Return the memory of each part that runs: the embedded broker of a home, and what was
    started from a database's folder.
    """
    by_part: dict[str, list[_ProcessMemory]] = {}
    for part, process in _processes(home, folder):
        taken = _taken(process)
        if taken is not None:
            by_part.setdefault(part, []).append(taken)
    return [
        PartMemory(
            part, len(each), _mb(taken.all_bytes for taken in each),
            _mb(taken.file_bytes for taken in each),
        )
        for part, each in by_part.items()
    ]  # fmt: skip


def memory_bytes(proc: Path = Path("/proc/self"), groups: Path = Path("/sys/fs/cgroup")) -> int:
    """Return how much memory this process may use: the machine's, or what its control groups
    (cgroups of either version) have left of it, as in a container.
    ``proc``: tells the groups of the process. ``groups``: where the system shows them.
    """
    import psutil

    total = int(psutil.virtual_memory().total)
    limits = [int(text) for text in _limits(proc, groups) if text.isdigit()]
    return min([total, *limits])


def _limits(proc: Path, groups: Path) -> Iterator[str]:
    """Yield the limits of the groups of a process, and of those that these are in."""
    try:
        lines = (proc / "cgroup").read_text("ascii").splitlines()
    except OSError:
        return
    for line in lines:
        _, kinds, place = line.split(":", 2)
        if kinds not in {"", "memory"}:
            continue
        top, name = (groups / kinds, "memory.limit_in_bytes") if kinds else (groups, "memory.max")
        own = Path(place)
        for group in (own, *own.parents):
            # In a container the group is often shown as the root.
            file = top / group.relative_to("/") / name
            with suppress(OSError):
                yield file.read_text("ascii").strip()


def _mb(sizes: Iterable[int]) -> float:
    return round(sum(sizes) / 1e6, 1)


def _processes(home: Path, folder: Path) -> Iterator[tuple[str, psutil.Process]]:
    from streamydb.local import processes
    from streamydb.local.broker import find_broker
    from streamydb.local.folder import CONNECT, FACADE, PIPELINE, READ_MODEL
    from streamydb.local.launcher import process_of

    broker = find_broker(home)
    if broker is not None and (process := process_of(broker.pid, broker.birth)) is not None:
        yield BROKER, process
    for role in (PIPELINE, READ_MODEL, FACADE, CONNECT):
        record = processes.find(folder, role)
        process = None if record is None else process_of(record.pid, record.birth)
        if process is not None:
            yield role, process
            yield from _below(process)


def _below(parent: psutil.Process) -> Iterator[tuple[str, psutil.Process]]:
    """Yield what a process has started: of a pipeline, the JVM, and below that the workers."""
    import psutil

    with suppress(psutil.Error):
        for process in parent.children(recursive=True):
            with suppress(psutil.Error):
                yield (JVM if process.name().startswith("java") else WORKERS), process


def _taken(process: psutil.Process) -> _ProcessMemory | None:
    """Return the memory of a process; None if it has ended, or is another user's."""
    import psutil

    try:
        text = Path("/proc", str(process.pid), "smaps_rollup").read_text("ascii")
    except OSError:
        try:
            return None if _LINUX else _ProcessMemory(process.memory_info().rss, 0)
        except psutil.Error:
            return None
    sizes = {name: int(kb) << 10 for name, kb in _SIZE.findall(text)}
    return _ProcessMemory(sizes["Pss"], max(0, sizes["Pss"] - sizes.get("Pss_Dirty", sizes["Pss"])))
