"""Making the archives of class data (see `local.class_data`): a small database runs once.

python -m streamydb.cli.class_data
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import psutil
import pyspark

from streamydb.errors import StreamyError
from streamydb.local.class_data import TRAINING, archive
from streamydb.local.file_lock import file_lock
from streamydb.local.jars import CONFIGURATIONS, cache_folder, resolve
from streamydb.pipeline.realtime.requirements import version_obstacle
from streamydb.records.gears import REAL_TIME
from streamydb.testing.database import Database, wait_for

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
            with tempfile.TemporaryDirectory(prefix=".training-", dir=folder) as scratch:
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


def main() -> int:
    """`python -m streamydb.cli.class_data`: make the archives; 0, or 1 with a message."""
    try:
        for file in make():
            sys.stdout.write(f"{file} ({file.stat().st_size >> 20} MB)\n")
    except StreamyError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
