"""A pipeline's checkpoint lies in a folder, or in an object store.

Spark writes its part of the checkpoint to either by itself. Our own code reads files, so of a
checkpoint in a store it works on a *copy* in a local folder: our own few files, and the offsets and
commits that a start looks at. The copy is made anew by `pull`; `push` brings our files to the store
before the query is started.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from streamydb.backup.start import START
from streamydb.errors import ConfigurationError
from streamydb.local.file_lock import HeldLock
from streamydb.pipeline.config import PipelineConfig
from streamydb.pipeline.lease import Objects, StoreLease, locked

_CONDITIONAL: Final = "fs.option.create.conditional.overwrite"
_QUERY: Final = "query"
_LOGS: Final = ("query/offsets", "query/commits")
_OTHERS: Final = ("query", "lease", START)
_NEWEST: Final = 3
_READS: Final = 3
_LOOKS: Final = 10
_LAST: Final = "state.json"  # the file of a state that says that all of it is there


@contextmanager
def opened(
    config: PipelineConfig, spark: Callable[[], SparkSession], stopped: Callable[[float], bool]
) -> Iterator[Checkpoint]:
    """Keep other pipelines off a checkpoint while the body runs: two on one would destroy it.

    ``spark``: gives the session, which reaches the store. ``stopped``: waits for so many seconds,
    and returns whether the pipeline is to stop. Raises ConfigurationError: another pipeline runs on
    it, or the store refuses something. Raises StopRequestedError: the pipeline is to stop.
    """
    with ExitStack() as held:
        if config.store is None:
            yield _FolderCheckpoint(held.enter_context(locked(config.checkpoint)))
            return
        with _reached(config.store):
            objects = HadoopObjects(spark(), config.store)
            lease = held.enter_context(StoreLease(objects, config.store, stopped))
            checkpoint = StoreCheckpoint(objects, config.checkpoint, lease)
        checkpoint.pull()
        yield checkpoint


@contextmanager
def _reached(store: str) -> Iterator[None]:
    """Raise an error of ours for one of Hadoop's."""
    try:
        yield
    except Py4JJavaError as error:
        raise ConfigurationError(
            f"the checkpoint {store} cannot be used: {error.java_exception.toString()} "
            "(docs/production.md, 'A checkpoint in an object store')"
        ) from error


class Checkpoint:
    """The checkpoint of a run."""

    @property
    def lost(self) -> str | None:
        """Why this pipeline must not go on with it; None while it may."""
        raise NotImplementedError

    def pull(self) -> None:
        """Bring what the store has into the local folder, if there is a store."""

    def push(self) -> None:
        """Bring our files of the local folder to the store, if there is one."""


class _FolderCheckpoint(Checkpoint):
    """A checkpoint that is a folder: there is nothing to copy.

    Its lock is lost only with the folder. Spark would make a new one, and write what is left to do
    there, where another pipeline may begin.
    """

    def __init__(self, lock: HeldLock) -> None:
        self._lock = lock

    @property
    def lost(self) -> str | None:
        if not self._lock.gone:
            return None
        return (
            f"the checkpoint {self._lock.path.parent} was deleted or moved away while the pipeline "
            "ran. Put it back, or start again without it: the log has everything "
            "(docs/operations.md, 'A damaged checkpoint')"
        )


class HadoopObjects(Objects):
    """The objects under a URL, by Hadoop's client in Spark's driver.

    So they need no other client and no other credentials than Spark's own files there.
    """

    def __init__(self, spark: SparkSession, url: str) -> None:
        """Connect. Raises Py4JJavaError: Hadoop has no file system for such URLs."""
        jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - PySpark shows it nowhere else
        self._path = jvm.org.apache.hadoop.fs.Path
        self._file = jvm.java.io.File
        self._copy = jvm.java.nio.file.Files.copy
        self._bytes = jvm.org.apache.commons.io.IOUtils.toByteArray
        self._url = url
        java: Any = spark.sparkContext._jsc  # noqa: SLF001
        self._files = self._path(url).getFileSystem(java.hadoopConfiguration())
        self._conditional = bool(self._files.hasPathCapability(self._at(""), _CONDITIONAL))

    def read(self, name: str) -> bytes | None:
        """Return what an object holds; None: there is none.

        S3A refuses to read one that is written over meanwhile, so it is tried some times.
        """
        for tries_left in reversed(range(_READS)):
            try:
                return self._read(name)
            except Py4JJavaError as error:
                if _is(error, "FileNotFoundException"):
                    return None
                if not tries_left:
                    raise
        return None

    def write(self, name: str, data: bytes) -> None:
        _fill(self._files.create(self._at(name), True), data)

    def create(self, name: str, data: bytes) -> bool:
        builder = self._files.createFile(self._at(name)).overwrite(False)
        if self._conditional:
            builder = builder.must(_CONDITIONAL, True)
        try:
            _fill(builder.recursive().build(), data)
        except Py4JJavaError as error:
            if _is(error, "FileAlreadyExistsException", "RemoteFileChangedException"):
                return False
            raise
        return True

    def names(self, folder: str) -> list[str]:
        try:
            files = self._files.listStatus(self._at(folder))
        except Py4JJavaError as error:
            if _is(error, "FileNotFoundException"):
                return []
            raise
        return [str(each.getPath().getName()) for each in files]

    def delete(self, name: str) -> None:
        self._files.delete(self._at(name), False)

    def fetch(self, name: str, path: Path) -> bool:
        try:
            self._files.copyToLocalFile(False, self._at(name), self._path(path.as_uri()), True)
        except Py4JJavaError as error:
            if not _is(error, "FileNotFoundException"):
                raise
            path.unlink(missing_ok=True)
            return False
        return True

    def send(self, name: str, path: Path) -> None:
        stream = self._files.create(self._at(name), True)
        self._copy(self._file(str(path)).toPath(), stream)
        stream.close()  # not after a failure: an object is there when its stream is closed

    def _read(self, name: str) -> bytes:
        stream = self._files.open(self._at(name))
        try:
            return bytes(self._bytes(stream))
        finally:
            stream.close()

    def _at(self, name: str) -> Any:
        return self._path(f"{self._url}/{name}" if name else self._url)


class StoreCheckpoint(Checkpoint):
    """A checkpoint in an object store, and its copy.

    ``copy``: the local folder; what it has is thrown away.
    """

    def __init__(self, objects: Objects, copy: Path, lease: StoreLease) -> None:
        self._lease = lease
        self._objects = objects
        self._copy = copy
        self._same: dict[str, tuple[int, int]] = {}
        self._lock = threading.Lock()
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir(parents=True)
        names = [name for name in objects.names("") if name not in _OTHERS]
        state = objects.names(START)
        if _LAST in state:
            names += [f"{START}/{name}" for name in state]
        for name in names:
            if self._fetch(name):
                self._same[name] = self._stamp(name)

    @property
    def lost(self) -> str | None:
        return self._lease.lost

    def pull(self) -> None:
        """Copy the oldest and the newest files of Spark's logs.
        Raises ConfigurationError: the store does not give them.
        """
        with self._lock, _reached(self._lease.url):
            if self._objects.names(_QUERY):
                for folder in _LOGS:
                    self._pull_log(folder)

    def _pull_log(self, folder: str) -> None:
        """Copy files of a log as they are at one moment.

        The query that runs removes the oldest one with every batch, so it may be gone when it is
        asked for.
        """
        (self._copy / folder).mkdir(parents=True, exist_ok=True)
        for _ in range(_LOOKS):
            numbers = sorted(map(int, filter(str.isdigit, self._objects.names(folder))))
            names = {str(number) for number in [*numbers[:1], *numbers[-_NEWEST:]]}
            for stale in (self._copy / folder).iterdir():
                if stale.name not in names:
                    stale.unlink()
            if all(self._fetch(f"{folder}/{name}") for name in names):
                return
        raise ConfigurationError(
            f"{self._lease.url}/{folder} changes faster than it can be read; it is read again later"
        )

    def push(self) -> None:
        """Write those of our files that the store does not have so.
        Raises ConfigurationError: the store does not take them.
        """
        with _reached(self._lease.url):
            changed = [
                path.relative_to(self._copy).as_posix()
                for path in sorted(self._copy.rglob("*"))
                if path.is_file()
            ]
            changed = [
                name
                for name in changed
                if not name.startswith(f"{_QUERY}/") and self._same.get(name) != self._stamp(name)
            ]
            last = f"{START}/{_LAST}"
            if last in changed:  # until all of a state is there, none is
                self._objects.delete(last)
                changed.sort(key=last.__eq__)
            for name in changed:
                self._objects.send(name, self._copy / name)
                self._same[name] = self._stamp(name)

    def _fetch(self, name: str) -> bool:
        path = self._copy / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return self._objects.fetch(name, path)

    def _stamp(self, name: str) -> tuple[int, int]:
        """Return numbers that change when a file is written anew."""
        status = (self._copy / name).stat()
        return status.st_ino, status.st_mtime_ns


def _fill(stream: Any, data: bytes) -> None:
    """Write and close: an object is there when its stream is closed, and not before."""
    stream.write(bytearray(data))
    stream.close()


def _is(error: Py4JJavaError, *kinds: str) -> bool:
    return error.java_exception.getClass().getSimpleName() in kinds
