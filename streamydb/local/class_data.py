"""Class-data archives: files of the classes that the JVMs of Spark and of the broker load and
verify.

A JVM that maps its archive needs two fifths less processor time until it works. An archive belongs
to one Java and one class path; the JVM itself checks that, and goes without it when they differ.
Nothing needs an archive, so nothing makes one unasked: that takes half a minute, once.

    python -m streamydb.cli.class_data

Source: Java's manual, "Class Data Sharing" (dynamic archives, `-XX:ArchiveClassesAtExit`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from streamydb.local.jars import cache_folder, spark_jars
from streamydb.local.java import find_java

__all__ = ["TRAINING", "archive", "java_options"]

TRAINING = "STREAMYDB_CLASS_DATA_TRAINING"
"""Names the folder into which the JVMs write their archives as they end, while they are made."""

_QUIET = "-Xlog:cds=off,cds+dynamic=off"


def archive(configuration: str, jars: Iterable[Path], cache: Path | None = None) -> Path:
    """Return the path of the archive of a configuration of `ivy.xml`, for the Java in use and these
    jars.

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
    if folder := environ.get(TRAINING):
        made = f"-XX:ArchiveClassesAtExit={Path(folder) / configuration}.jsa"
        return [made, _QUIET, "-XX:TieredStopAtLevel=1"]
    file = archive(configuration, jars)
    return [f"-XX:SharedArchiveFile={file}", _QUIET] if file.is_file() else []
