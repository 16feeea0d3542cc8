"""Class-data archives: files of the classes that the JVMs of Spark and of the broker load and
verify.

A JVM that maps its archive needs two fifths less processor time until it works. Java 25 and newer
also keep what they learned about the methods (an ahead-of-time cache), which spares another fifth.
An archive belongs to one Java and one class path; the JVM itself checks that, and goes without it
when they differ. To make them takes half a minute, once; three times that with Java 25. A process
that the first `streamydb up` leaves behind does so when the processors have nothing else to do; so
does, at once:

    python -m streamydb.cli.class_data

Source: Java's manual, "Class Data Sharing" (dynamic archives, `-XX:ArchiveClassesAtExit`); JEP 514
and 515 (`-XX:AOTCacheOutput`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from streamydb.local.jars import CONFIGURATIONS, cache_folder, cached, needed_jars, spark_jars
from streamydb.local.java import find_java

TRAINING = "STREAMYDB_CLASS_DATA_TRAINING"
"""Names the folder into which the JVMs write their archives as they end, while they are made."""

_CACHES_SINCE = 25  # the first Java that writes an ahead-of-time cache in one run
_IN_PLACE = ("-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0")
"""Map an archive at the address that it was written for.

By default Java maps it at another one in each run, as a protection, and changes all addresses in
it: so each page is a copy in the memory of this JVM, 200 MB of Spark's, and a start does that work.
In place only pages that are used are in memory, and unchanged ones are the file's own.
"""

_IN_PLACE_UNTIL = 25
"""The last Java that is known to have this option; a JVM that has it not would not start."""

_TRAINED = 3
"""Changes when the class path of a JVM does, or when JVMs load more classes: archives that were
made before do not fit.
"""


def archive(configuration: str, jars: Iterable[Path]) -> Path:
    """Return the path of the archive of a configuration of `ivy.xml`, for the Java in use and these
    jars.
    Raises JavaError: no usable Java.
    """
    java_in_use = find_java()
    java = java_in_use.path.resolve()
    digest = hashlib.sha256(f"{_TRAINED} {java} {java.stat().st_mtime_ns}".encode())
    shipped = needed_jars(spark_jars()) if configuration == "pipeline" else []
    for jar in [*jars, *shipped]:
        digest.update(f"{jar} {jar.stat().st_size}".encode())
    folder = cache_folder() / "class-data"
    kind = "aot" if java_in_use.version >= _CACHES_SINCE else "jsa"
    return folder / f"{configuration}-{digest.hexdigest()[:16]}.{kind}"


def is_missing() -> bool:
    """Return True if all jars are there, and not all archives.
    Raises JavaError: no usable Java.
    """
    fetched = {name: cached(name) for name in CONFIGURATIONS}
    return all(fetched.values()) and not all(
        archive(name, jars or ()).is_file() for name, jars in fetched.items()
    )


def java_options(
    configuration: str, jars: Iterable[Path], environ: Mapping[str, str] | None = None
) -> list[str]:
    """The options with which a JVM maps its archive; none if it was not made."""
    environ = os.environ if environ is None else environ
    file = archive(configuration, jars)
    cache = file.suffix == ".aot"
    quiet = "-Xlog:aot=off" if cache else "-Xlog:cds=off,cds+dynamic=off"
    if folder := environ.get(TRAINING):
        new_archive = Path(folder) / f"{configuration}{file.suffix}"
        if cache:
            return [f"-XX:AOTCacheOutput={new_archive}", quiet]
        return [f"-XX:ArchiveClassesAtExit={new_archive}", quiet, "-XX:TieredStopAtLevel=1"]
    if not file.is_file():
        return []
    use = "AOTCache" if cache else "SharedArchiveFile"
    in_place = _IN_PLACE if find_java().version <= _IN_PLACE_UNTIL else ()
    return [f"-XX:{use}={file}", *in_place, quiet]
