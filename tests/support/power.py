"""A loss of power: what a process has written and not synced to the disk is gone."""

from __future__ import annotations

import os
import struct
from contextlib import AbstractContextManager
from pathlib import Path
from unittest import mock

from tests.support.machine import compiled

_ENTRY = struct.Struct("=QQ")

_SHIM = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int journal = -1;

__attribute__((constructor)) static void find(void) {
  const char *name = getenv("STREAMYDB_TEST_SYNCED");
  if (name) journal = open(name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}

static int note(int file, int failed, const struct stat *before) {
  uint64_t entry[2] = {before->st_ino, before->st_size};
  if (!failed && journal >= 0 && S_ISREG(before->st_mode))
    if (write(journal, entry, sizeof entry) != sizeof entry) abort();
  (void)file;
  return failed;
}

int fsync(int file) {
  struct stat before;
  if (fstat(file, &before)) return -1;
  return note(file, (int)syscall(SYS_fsync, file), &before);
}

int fdatasync(int file) {
  struct stat before;
  if (fstat(file, &before)) return -1;
  return note(file, (int)syscall(SYS_fdatasync, file), &before);
}
"""
"""Preloaded into a process: a journal says how long each file was when it was last synced."""


class Power:
    """The power of the processes that are started in `preloaded`.

    Segments of a broker's log are lost from where they were synced last. Its other files are small,
    synced when they are written, or made anew from the segments.

    Raises:
        OSError, subprocess.CalledProcessError: there is no C compiler; see `machine.has_compiler`.
    """

    def __init__(self, folder: Path) -> None:
        """Compile the library."""
        folder.mkdir(parents=True, exist_ok=True)
        self._journal = folder / "journal"
        library = compiled(_SHIM, folder / "synced.so")
        self._environment = {
            "LD_PRELOAD": str(library), "STREAMYDB_TEST_SYNCED": str(self._journal),
        }  # fmt: skip

    def preloaded(self) -> AbstractContextManager[object]:
        """Processes started in the body lose what they do not sync."""
        return mock.patch.dict(os.environ, self._environment)

    def lose(self, data: Path) -> int:
        """Lose the power of a broker that was killed; return how many bytes are gone.

        Args:
            data: its folder.
        """
        synced = self._synced()
        lost = 0
        for path in data.rglob("*.log"):
            found = path.stat()
            size = min(synced.get(found.st_ino, 0), found.st_size)
            lost += found.st_size - size
            os.truncate(path, size)
        for pattern in ("*.index", "*.timeindex"):
            for path in data.rglob(pattern):
                path.unlink()
        return lost

    def _synced(self) -> dict[int, int]:
        """Return how long files were when they were synced last, by inode."""
        return dict(_ENTRY.iter_unpack(self._journal.read_bytes()))
