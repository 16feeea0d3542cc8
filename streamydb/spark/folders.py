"""Folders of snapshots on any file system that Spark knows, through Hadoop's interface."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from streamydb.backup.snapshots import SnapshotError, SnapshotManifest
from streamydb.backup.snapshots.manifest import MANIFEST, decode_manifest, encode_manifest

_PATTERN: Final = re.compile(r"[\\*?{}\[\]]")


def uri_of(folder: Path | str) -> str:
    """Return a folder's URI for Spark, whatever its default file system is."""
    text = str(folder).rstrip("/")
    return text if "://" in text else f"file://{Path(text.removeprefix('file:')).resolve()}"


def literal(uri: str) -> str:
    """Return a URI that Spark reads as it stands: it takes what it reads from for a pattern."""
    return _PATTERN.sub(r"\\\g<0>", uri)


def require_writable(folder: Path | str) -> None:
    """Refuse a folder of this machine in which nothing can be made; of others nothing is known yet.
    Raises SnapshotError: it is a file, or lies in one, or must not be written.
    """
    scheme, path = uri_of(folder).split("://", 1)
    if scheme != "file":
        return
    there = next(each for each in (Path(path), *Path(path).parents) if os.path.lexists(each))
    if not there.is_dir():
        raise SnapshotError(f"no snapshots can be kept in {path}: {there} is no folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise SnapshotError(f"no snapshots can be kept in {path}: {there} cannot be written")


class Folders:
    """Snapshots in one folder, each in a folder of its own that appears whole or not at all."""

    def __init__(self, spark: SparkSession, folder: Path | str) -> None:
        """Name the folder; it is made when something is written."""
        text = str(folder)
        self._root = text.rstrip("/") if "://" in text else str(Path(text).resolve())
        jvm: Any = spark._jvm  # noqa: SLF001 - Hadoop's file systems have no other way in
        self._path = jvm.org.apache.hadoop.fs.Path
        configuration = spark._jsc.hadoopConfiguration()  # noqa: SLF001
        self._uri = uri_of(folder)
        with self._asked():
            self._system: Any = self._path(self._uri).getFileSystem(configuration)

    def path(self, name: str) -> str:
        """The folder of a snapshot, for people and for `read_manifest`."""
        return f"{self._root}/{name}"

    def manifest(self, name: str) -> SnapshotManifest | None:
        """The manifest of a snapshot that is there.
        Raises SnapshotError: something else is there.
        """
        with self._asked():
            if not self._system.exists(self._path(f"{self._uri}/{name}")):
                return None
        file = self._path(f"{self._uri}/{name}/{MANIFEST}")
        if not self._system.exists(file):
            raise SnapshotError(f"{self.path(name)} is there, and no snapshot: move it away")
        size = self._system.getFileStatus(file).getLen()
        stream = self._system.open(file)
        try:
            data = bytes(stream.readNBytes(int(size)))
        finally:
            stream.close()
        return decode_manifest(data, self.path(name))

    @contextmanager
    def draft(self, name: str) -> Iterator[str]:
        """A folder that gets the name when the block ends well, and vanishes otherwise.
        Raises SnapshotError: no folder can be made there, somebody else has taken the name, or what
        is done in the JVM fails.
        """
        draft = f"{self._uri}/.{name}.partial-{uuid.uuid4().hex[:8]}"
        here, there = self._path(draft), self._path(f"{self._uri}/{name}")
        with self._asked():
            if not self._system.mkdirs(here):
                raise SnapshotError(f"{self._root} cannot be written: name another folder")
        try:
            yield draft
            if self._system.exists(there) or not self._system.rename(here, there):
                raise SnapshotError(f"{self.path(name)} could not be put in place: is it taken?")
        except (Py4JJavaError, PySparkException) as error:
            raise SnapshotError(
                f"{self.path(name)} could not be written: {first_cause(error)}. What was begun is "
                "removed; mend that, and run the command again"
            ) from error
        finally:
            if self._system.exists(here):
                self._system.delete(here, True)

    @contextmanager
    def _asked(self) -> Iterator[None]:
        """Put what a file system refuses into a sentence. Raises SnapshotError: it refuses."""
        try:
            yield
        except Py4JJavaError as error:
            cause = error.java_exception
            said = cause.getMessage() or cause.getClass().getName()
            raise SnapshotError(f"no snapshots can be kept in {self._root}: {said}") from None

    def data_files(self, draft: str) -> list[str]:
        """The data files of a draft, in the order of the keys."""
        files = self._system.listStatus(self._path(f"{draft}/data"))
        names = sorted(str(status.getPath().getName()) for status in files)
        return [f"data/{name}" for name in names if name.endswith(".parquet")]

    def write_manifest(self, draft: str, manifest: SnapshotManifest) -> None:
        """Write the manifest of a draft."""
        stream = self._system.create(self._path(f"{draft}/{MANIFEST}"), False)
        try:
            stream.write(bytearray(encode_manifest(manifest)))
        finally:
            stream.close()


def first_cause(error: Py4JJavaError | PySparkException) -> str:
    """Return the words of the exception that all others come of."""
    if isinstance(error, PySparkException):  # of a Python worker's traceback, the end
        return str(error).strip().rpartition("\n")[2].rstrip(".")
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    return str(cause.getMessage() or cause.getClass().getName()).rstrip(".")
