"""Making the archives of class data (see `local.class_data`): a small database runs once.

python -m streamydb.cli.class_data [--later]

With `--later`, as `streamydb up` begins it: in 20 seconds, if there is memory, and whoever else
wants a processor has it first.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import psutil
import pyspark

from streamydb.errors import StreamyError
from streamydb.local.class_data import TRAINING, archive
from streamydb.local.file_lock import file_lock
from streamydb.local.jars import CONFIGURATIONS, cache_folder, resolve
from streamydb.local.signals import unwinding
from streamydb.pipeline.realtime.requirements import version_obstacle
from streamydb.records.gears import REAL_TIME
from streamydb.testing.database import Database, wait_for

LATER: Final = "--later"
_LATER_S: Final = 20
"""A user who has just started a database tries it."""

_MEMORY_BYTES: Final = 3 << 30
"""A small database takes half of it."""

_KEPT: Final = ("STREAMYDB_CACHE", "STREAMYDB_IVY_SETTINGS")
"""The settings that the small database shares with the one which was started."""

_SCRATCH: Final = ".training-"
_EXIT_S = 120


class ClassDataError(StreamyError):
    """The archives could not be made; everything works without them."""


def make() -> list[Path]:
    """Make the archives that are missing, by running a small database; return where they lie.
    Raises ClassDataError: a JVM wrote none, or the database did not run; JarsError: the jars cannot
    be fetched; JavaError: no usable Java.
    """
    archives = {name: archive(name, resolve(name)) for name in CONFIGURATIONS}
    folder = cache_folder() / "class-data"
    with file_lock(folder.with_suffix(".lock")):
        if not all(file.is_file() for file in archives.values()):
            folder.mkdir(parents=True, exist_ok=True)
            for abandoned in folder.glob(f"{_SCRATCH}*"):  # by who was killed
                shutil.rmtree(abandoned, ignore_errors=True)
            with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=folder) as scratch:
                _train(Path(scratch))
                for name, file in archives.items():
                    archive_made = Path(scratch) / f"{name}{file.suffix}"
                    if not archive_made.is_file():
                        raise ClassDataError(
                            f"Java wrote no archive {archive_made.name}; "
                            "everything works without it"
                        )
                    archive_made.rename(file)
    return list(archives.values())


def _train(scratch: Path) -> None:
    """Run broker and pipeline until each gear has executed a transaction; end both gracefully."""
    os.environ[TRAINING] = str(scratch)
    gears = [] if version_obstacle(pyspark.__version__) else ["--gear", "both"]
    try:
        with Database(scratch / "database", options=gears) as database:
            _execute(database)
            if gears:
                wait_for(lambda: _leads(database, REAL_TIME), "the lead of the real-time gear")
                _execute(database)
            below = database.processes()[1:]
            database.stop_pipeline()
            psutil.wait_procs(below, _EXIT_S)
            database.broker.stop(_EXIT_S)
    except (StreamyError, AssertionError) as error:
        raise ClassDataError(f"the database for the archives did not run: {error}") from error
    finally:
        del os.environ[TRAINING]


def _execute(database: Database) -> None:
    database.load([{"updates": [{"op": "add", "key": "x", "by": 1}]}])
    database.assert_serial()


def _leads(database: Database, gear: str) -> bool:
    gear_status = database.status().gear
    return gear_status is not None and gear_status.gear == gear


def _give_way() -> None:
    """Let everybody else have the processors first; wait; drop the settings of another database.
    Raises ClassDataError: there is too little memory.
    """
    os.nice(19)
    if sys.platform == "linux":
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    time.sleep(_LATER_S)
    if (available := psutil.virtual_memory().available) < _MEMORY_BYTES:
        raise ClassDataError(
            f"{available >> 20} MB of memory are free, and {_MEMORY_BYTES >> 20} are needed; the "
            "next `streamydb up` tries again"
        )
    for name in [each for each in os.environ if each.startswith("STREAMYDB_")]:
        if name not in _KEPT:
            del os.environ[name]


def main(arguments: Sequence[str] = ()) -> int:
    """`python -m streamydb.cli.class_data`: make the archives; 0, or 1 with a message."""
    try:
        with unwinding():  # SIGTERM stops the small database, too
            if LATER in arguments:
                _give_way()
            files = make()
        for file in files:
            sys.stdout.write(f"{file} ({file.stat().st_size >> 20} MB)\n")
    except StreamyError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
