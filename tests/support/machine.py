"""Faults of the machine: a disk that is full, a clock that jumps, processes that are halted."""

from __future__ import annotations

import mmap
import os
import shutil
import signal
import struct
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from unittest import mock

import psutil

_CHUNK = 1 << 20

SHIM = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *ahead_ms;

__attribute__((constructor)) static void find(void) {
  const char *name = getenv("STREAMYDB_TEST_CLOCK");
  int file = name ? open(name, O_RDONLY) : -1;
  if (file < 0) return;
  void *place = mmap(0, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  if (place != MAP_FAILED) ahead_ms = place;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int failed = (int)syscall(SYS_clock_gettime, clock, now);
  if (!failed && ahead_ms && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    int64_t ns = now->tv_nsec + (*ahead_ms % 1000) * 1000000;
    now->tv_sec += *ahead_ms / 1000 + (ns < 0 ? -1 : ns / 1000000000);
    now->tv_nsec = ns < 0 ? ns + 1000000000 : ns % 1000000000;
  }
  return failed;
}

int gettimeofday(struct timeval *now, void *zone) {
  struct timespec found;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &found)) return -1;
  now->tv_sec = found.tv_sec;
  now->tv_usec = found.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *place) {
  struct timespec found;
  if (clock_gettime(CLOCK_REALTIME, &found)) return -1;
  if (place) *place = found.tv_sec;
  return found.tv_sec;
}
"""
"""Preloaded into a process: its clock is the kernel's plus what a file says."""


class Clock:
    """The clock of the processes that are started with `environment`.

    Raises:
        OSError, subprocess.CalledProcessError: there is no C compiler; see `has_compiler`.
    """

    def __init__(self, folder: Path) -> None:
        """Compile the library; the clock is right."""
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / "ahead_ms"
        self._file.write_bytes(bytes(8))
        library = compiled(SHIM, folder / "clock.so")
        self.environment = {"LD_PRELOAD": str(library), "STREAMYDB_TEST_CLOCK": str(self._file)}

    def jump(self, ahead_ms: int) -> None:
        """From now on it shows so much more than the kernel's; negative: less."""
        with self._file.open("r+b") as file, mmap.mmap(file.fileno(), 8) as place:
            place[:] = struct.pack("=q", ahead_ms)

    def preloaded(self) -> AbstractContextManager[object]:
        """Processes started in the body have this clock."""
        return mock.patch.dict(os.environ, self.environment)


def compiled(source: str, library: Path) -> Path:
    """Compile a text in C, which lies beside the shared library that comes of it, and return that.

    Raises:
        OSError, subprocess.CalledProcessError: there is no C compiler; see `has_compiler`.
    """
    text = library.with_suffix(".c")
    text.write_text(source)
    command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(text)]
    subprocess.run(command, check=True, capture_output=True)
    return library


def has_compiler() -> bool:
    """Whether a `Clock` can be made here."""
    return shutil.which("cc") is not None


class Disk:
    """A small file system in memory, which can be full."""

    def __init__(self, folder: Path, size_mb: int) -> None:
        """Mount it on a folder, which is made; see `can_mount`."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        options = ["-o", f"size={size_mb}m,mode=755"]
        subprocess.run(["mount", "-t", "tmpfs", *options, "tmpfs", str(folder)], check=True)

    @property
    def _ballast(self) -> Path:
        return self.folder / "ballast"

    def fill(self) -> None:
        """Leave no byte free."""
        size = _CHUNK
        with self._ballast.open("ab", buffering=0) as file:
            while size:
                try:
                    if file.write(bytes(size)) < size:
                        size //= 2
                except OSError:
                    size //= 2

    def stay_full_until(self, ended: Callable[[], bool]) -> Callable[[], bool]:
        """Return a condition that fills it once more, then asks for an end.

        Whoever cannot write deletes what he has begun, and what is old: then there is room again.
        """

        def has_ended() -> bool:
            self.fill()
            return ended()

        return has_ended

    def free(self) -> None:
        """Give the space back."""
        self._ballast.unlink(missing_ok=True)

    def unmount(self) -> None:
        """Remove it and all that lies in it, once nobody uses it."""
        subprocess.run(["umount", "-l", str(self.folder)], check=True)


@contextmanager
def small_disk(folder: Path, size_mb: int) -> Iterator[Disk]:
    """A `Disk` for the time of the body."""
    disk = Disk(folder, size_mb)
    try:
        yield disk
    finally:
        disk.unmount()


def can_mount() -> bool:
    """Whether this process may mount file systems, and is allowed to (containers often are not)."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return False
    tried = subprocess.run(
        ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"],
        capture_output=True, check=False,
    )  # fmt: skip
    return tried.returncode == 0


@contextmanager
def halted(processes: Iterable[psutil.Process]) -> Iterator[int]:
    """SIGSTOP processes for the time of the body; how many."""
    stopped = list(processes)
    try:
        for process in stopped:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGSTOP)
        yield len(stopped)
    finally:
        for process in stopped:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)
