"""Class-data archives: what the JVMs of Spark and of the broker have loaded and verified, in files.

A JVM that maps its archive needs two fifths less processor time until it works. An archive belongs
to one Java and one class path; the JVM itself checks that, and goes without it when they differ.
Nothing needs an archive, so nothing makes one unasked: that takes half a minute, once.

    python -m streamydb.local.class_data

Source: Java's manual, "Class Data Sharing" (dynamic archives, `-XX:ArchiveClassesAtExit`).
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import psutil

from streamydb.errors import StreamyError
from streamydb.local.file_lock import file_lock
from streamydb.local.jars import CONFIGURATIONS, cache_folder, resolve, spark_jars
from streamydb.local.java import find_java

__all__ = ["ClassDataError", "archive", "java_options", "main", "make"]

_TRAINING = "STREAMYDB_CLASS_DATA_TRAINING"
"""Names the folder into which the JVMs write their archives as they end, while they are made."""

_EXIT_S = 120
_QUIET = "-Xlog:cds=off,cds+dynamic=off"


class ClassDataError(StreamyError):
    """The archives could not be made; everything works without them."""


def archive(configuration: str, jars: Iterable[Path], cache: Path | None = None) -> Path:
    """Where the archive of a configuration of `ivy.xml` lies, for the Java in use and these jars.

    Raises:
        JavaError: no usable Java.
    """
    java = find_java().path.resolve()
    digest = hashlib.sha256(f"{java} {java.stat().st_mtime_ns}".encode())
    shipped = spark_jars() if configuration == "pipeline" else []
    for jar in [*jars, *shipped]:
        digest.update(f"{jar} {jar.stat().st_size}".encode())
    folder = (cache or cache_folder()) / "class-data"
    return folder / f"{configuration}-{digest.hexdigest()[:16]}.jsa"


def java_options(
    configuration: str, jars: Iterable[Path], environ: Mapping[str, str] | None = None
) -> list[str]:
    """The options with which a JVM maps its archive; none if it was not made."""
    environ = os.environ if environ is None else environ
    if folder := environ.get(_TRAINING):
        made = f"-XX:ArchiveClassesAtExit={Path(folder) / configuration}.jsa"
        return [made, _QUIET, "-XX:TieredStopAtLevel=1"]
    file = archive(configuration, jars)
    return [f"-XX:SharedArchiveFile={file}", _QUIET] if file.is_file() else []


def make() -> list[Path]:
    """Make the archives that are missing, by running a small database; where they lie.

    Raises:
        ClassDataError: a JVM wrote none, or the database did not run.
        JarsError: the jars cannot be fetched.
        JavaError: no usable Java.
    """
    wanted = {name: archive(name, resolve(name)) for name in CONFIGURATIONS}
    folder = cache_folder() / "class-data"
    with file_lock(folder.with_suffix(".lock")):
        if not all(file.is_file() for file in wanted.values()):
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".training-", dir=folder) as scratch:
                _train(Path(scratch))
                for name, file in wanted.items():
                    _keep(Path(scratch) / f"{name}.jsa", file)
    return list(wanted.values())


def _train(scratch: Path) -> None:
    """Run broker and pipeline until a transaction is executed, and end both gracefully."""
    from streamydb.testing.database import Database  # it imports what imports this module

    os.environ[_TRAINING] = str(scratch)
    try:
        with Database(scratch / "database") as database:
            database.load([{"updates": [{"op": "add", "key": "x", "by": 1}]}])
            database.assert_serial()
            below = database.processes()[1:]
            database.stop_pipeline()
            psutil.wait_procs(below, _EXIT_S)
            database.broker.stop(_EXIT_S)
    except (StreamyError, AssertionError) as error:
        raise ClassDataError(f"the database for the archives did not run: {error}") from error
    finally:
        del os.environ[_TRAINING]


def _keep(made: Path, file: Path) -> None:
    if not made.is_file():
        raise ClassDataError(f"Java wrote no archive {made.name}; everything works without it")
    made.rename(file)


def main() -> int:
    """`python -m streamydb.local.class_data`: make the archives; 0, or 1 with a message."""
    try:
        for file in make():
            sys.stdout.write(f"{file} ({file.stat().st_size >> 20} MB)\n")
    except StreamyError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
