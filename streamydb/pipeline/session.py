"""The Spark session of the pipeline, when no `spark-submit` made one."""

from __future__ import annotations

import logging
import os
import re
import secrets
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from streamydb.errors import StreamyError
from streamydb.local.class_data import java_options
from streamydb.local.file_lock import scratch_folder, sweep
from streamydb.local.jars import class_path, resolve, spark_home
from streamydb.local.java import GIVES_BACK, java_home
from streamydb.local.own_process import few_arenas
from streamydb.local.resources import shipped_file, spark_defaults
from streamydb.pipeline.config import SMALL_JAVA, PipelineConfig
from streamydb.pipeline.daemon import EarlyDaemon
from streamydb.pipeline.jvm import EarlyJvm, Jvm

log = logging.getLogger("streamydb.pipeline")

STORE_SETTINGS: Final = {"spark.sql.streaming.stateStore.checkpointFormatVersion": "2"}
"""Files of state have a unique name each, which the commit of their batch lists. So nothing is
written over, and what a pipeline writes that has lost its lease belongs to no batch.
"""

PIPELINED: Final = "spark.python.udf.pipelined.enabled"
"""Spark's setting, of the whole application: the worker of a Python function writes each batch at
once. Without it an output of the real-time gear takes hundreds of milliseconds.
"""

POLLING_DELAY: Final = "spark.sql.streaming.pollingDelay"
_FOLLOWING_DELAY: Final = "500ms"
"""How long the micro-batch gear waits before it looks for data again, beside the real-time gear,
where `pipeline.reads` cannot choose it.
"""

GEAR_SLOTS: Final = 1  # so many tasks the real-time gear has, which run all the time
DRIVER_OPTIONS: Final = "spark.driver.extraJavaOptions"  # Spark's setting: options of its JVM
_LOCAL = re.compile(r"local(?:\[([^\],]+)(,[^\]]+)?\])?")
"""A master on this machine: its number of cores, and that of a failed task's attempts."""

_TASK_FAILURES_MAX = 4
_HADOOP = "spark.hadoop."
DAEMON: Final = "spark.python.daemon.module"
OUR_DAEMON: Final = "streamydb.pipeline.daemon"
_OTHER_WORKERS: Final = frozenset({"spark.pyspark.python", "spark.python.use.daemon"})
"""Settings with which our daemon would not fork the workers."""

LOCAL_DIR: Final = "spark.local.dir"  # Spark's setting: its folders for temporary files
LOCAL_DIRS: Final = "SPARK_LOCAL_DIRS"  # the same as a variable, which wins
_LIBRARY: Final = "ROCKSDB_SHAREDLIB_DIR"  # names the folder into which RocksDB unpacks its library
_JAVA_TEMPORARY: Final = "-Djava.io.tmpdir="
"""Names the JVM's folder for temporary files: libraries that it unpacks (lz4 knows no other place),
and the sockets of Python workers.
"""

_SOCKET_BYTES: Final = 43
_SOCKET_PATH_BYTES_MAX: Final = 103
"""A socket is `.<36 characters>.sock` in that folder; longer paths than this can be none."""

_HASH_SEED: Final = "PYTHONHASHSEED"
"""Seeds Python's hashes of texts in all workers, which Spark wants to be the same.

Spark takes 0 by default. Then clients could choose texts that a dict finds one behind the other.
"""


def on_one_machine(master: str) -> bool:
    """Return True if all tasks run on the driver's machine."""
    return _LOCAL.fullmatch(master) is not None


def task_slots(spark: SparkSession) -> int:
    """Return how many tasks run at the same time at most."""
    context: Any = spark.sparkContext._jsc.sc()  # noqa: SLF001 - PySpark shows it nowhere else
    profile = context.resourceProfileManager().defaultResourceProfile()
    return int(context.maxNumConcurrentTasks(profile))


def with_retries(master: str) -> str:
    """The master with retries of failed tasks, which a plain `local[N]` does not have.

    Without them a Python worker that dies would end the query.
    """
    match = _LOCAL.fullmatch(master)
    return master if match is None or match[2] else f"local[{match[1] or 1},{_TASK_FAILURES_MAX}]"


def with_slots(master: str, more: int) -> str:
    """Return a master on this machine with ``more`` task slots; another one as it is.

    A task that waits takes no core.
    """
    match = _LOCAL.fullmatch(master)
    if match is None:
        return master
    cores = os.cpu_count() or 1 if match[1] == "*" else int(match[1] or 1)
    return f"local[{cores + more}{match[2] or ''}]"


def _defaults(master: str) -> dict[str, str]:
    """Our settings with our jars, the archive of their classes if there is one, a quiet log.

    And our daemon of Python workers, where they run on this machine, so that they have us.
    """
    jars = resolve("pipeline")
    settings = spark_defaults()
    here = {DAEMON: OUR_DAEMON} if on_one_machine(master) else {}
    return {
        **settings,
        **here,
        DRIVER_OPTIONS: driver_options(settings.get(DRIVER_OPTIONS, "")),
        "spark.driver.extraClassPath": class_path(jars),
        "spark.executor.extraClassPath": class_path(jars),
    }


def driver_options(collector: str) -> str:
    """Return the options of Spark's JVM on this machine.

    ``collector``: those of its garbage collector and its compilers.
    """
    log = f'"-Dlog4j2.configurationFile={shipped_file("log4j2.properties")}"'
    return " ".join([collector, *GIVES_BACK, *java_options("pipeline", resolve("pipeline")), log])


def forget_defaults(spark: SparkSession) -> None:
    """Leave of Hadoop's settings only those that Spark was given (`spark.hadoop.*`).

    Spark sends all of them with every micro-batch, and a thousand are Hadoop's own defaults. On one
    machine, with a checkpoint in a folder, its code needs none of them.

    Whatever adds a file of defaults has Hadoop read all of them again. Spark does it when it makes
    the state of its session, so that is made before.
    """
    context = spark.sparkContext
    if not str(context.master).startswith("local"):
        return
    spark._jsparkSession.sessionState()  # noqa: SLF001
    java: Any = context._jsc  # noqa: SLF001 - PySpark shows it nowhere else
    settings = java.hadoopConfiguration()
    settings.clear()
    for name, value in context.getConf().getAll():
        if name.startswith(_HADOOP):
            settings.set(name.removeprefix(_HADOOP), value)


@dataclass(frozen=True, slots=True)
class SparkProcesses:
    """The processes that a session has before it is made: its JVM, and its workers' daemon."""

    jvm: EarlyJvm | None = None
    daemon: EarlyDaemon | None = None


def start_processes(
    name: str, master: str | None, extra: Mapping[str, str] | None = None
) -> SparkProcesses:
    """Start what a session will need, so that it boots while the caller loads its modules.

    ``master``: Spark's master URL; None: `spark-submit` has started what there is.
    Raises ConfigurationError: there is no Java, or a jar is missing.
    """
    _prepare_environment(master)
    os.environ.setdefault(_HASH_SEED, str(secrets.randbits(32)))
    if master is None:
        return SparkProcesses()
    settings = _settings(name, master, extra)
    if on_one_machine(master) and LOCAL_DIR not in settings and LOCAL_DIRS not in os.environ:
        settings = _in_scratch(settings)
    daemon = None
    if settings.get(DAEMON) == OUR_DAEMON and _OTHER_WORKERS.isdisjoint(settings):
        try:
            daemon = EarlyDaemon(os.environ["PYSPARK_PYTHON"])
        except OSError as error:
            log.info("the daemon of the Python workers is not started early: %s", error)
    jvm = EarlyJvm(Path(os.environ["SPARK_HOME"]), settings)
    threading.Thread(target=sweep, name="streamydb-sweep", daemon=True).start()
    return SparkProcesses(jvm, daemon)


def _in_scratch(settings: dict[str, str]) -> dict[str, str]:
    """Have Spark keep its temporary files where a later start finds what this one may leave.

    Return the settings, with the JVM's folder for its own.
    """
    try:
        folder = str(scratch_folder())
    except OSError as error:
        log.info("Spark keeps its temporary files where it does by default: %s", error)
        return settings
    os.environ[LOCAL_DIRS] = folder
    os.environ.setdefault(_LIBRARY, folder)
    options = settings.get(DRIVER_OPTIONS, "")
    path_bytes = len(os.fsencode(folder)) + 1 + _SOCKET_BYTES
    if _JAVA_TEMPORARY in options or path_bytes > _SOCKET_PATH_BYTES_MAX:
        return settings
    return {**settings, DRIVER_OPTIONS: f'{options} "{_JAVA_TEMPORARY}{folder}"'.strip()}


def _prepare_environment(master: str | None) -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.update(few_arenas())  # for the JVM and the workers that it starts
    if master is not None:
        os.environ.setdefault("JAVA_HOME", java_home())
        package = Path(pyspark.__file__).parent
        home = spark_home(package) if on_one_machine(master) else package
        os.environ.setdefault("SPARK_HOME", str(home))


def _settings(name: str, master: str | None, extra: Mapping[str, str] | None) -> dict[str, str]:
    """All that a session is to be given; `spark-submit` has given the rest."""
    ours = {}
    if master is not None:
        ours = {**_defaults(master), "spark.master": with_retries(master)}
    return {**ours, "spark.app.name": name, **(extra or {})}


def _our_daemon() -> dict[str, str]:
    """Return the setting of our daemon for an application of `spark-submit` on one machine."""
    SparkContext._ensure_initialized()  # noqa: SLF001 - `SparkConf` reads what it was given then
    given = SparkConf()
    if given.contains(DAEMON) or not on_one_machine(given.get("spark.master", "")):
        return {}
    return {DAEMON: OUR_DAEMON}


def session(
    name: str,
    master: str | None,
    extra: Mapping[str, str] | None = None,
    jvm: EarlyJvm | None = None,
) -> SparkSession:
    """Get the session that `spark-submit` prepared, or make one with our defaults and jars.

    ``master``: Spark's master URL; None: `spark-submit` has given it. ``jvm``: of `start_processes`
    with the same three.
    """
    _prepare_environment(master)
    settings = jvm.settings if jvm is not None else _settings(name, master, extra)
    if master is None:
        settings = {**_our_daemon(), **settings}
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    with nullcontext() if jvm is None else jvm.ready():
        spark = builder.getOrCreate()
    for key, value in (extra or {}).items():
        if spark.conf.isModifiable(key):
            spark.conf.set(key, value)
    return spark


class SparkLaunch:
    """A session that is made in a thread of its own.

    Args:
        make: makes the session; an error of it is raised by `session`.
        abandon: ends what was begun, when nobody takes the session.
        daemon: of the Python workers, if it was started already.
    """

    def __init__(
        self,
        make: Callable[[], SparkSession],
        abandon: Callable[[], None],
        daemon: EarlyDaemon | None = None,
    ) -> None:
        self._make = make
        self._abandon = abandon
        self._daemon = daemon
        self._made: SparkSession | BaseException | None = None
        self._ready = threading.Event()
        self._taken = False
        thread = threading.Thread(target=self._run, name="streamydb-spark", daemon=True)
        thread.start()

    def session(self) -> SparkSession:
        """Wait for the session; it is the caller's from then on."""
        self._ready.wait()
        if isinstance(self._made, SparkSession):
            self._taken = True
            return self._made
        raise self._made or RuntimeError("there is no session")

    def compile(self) -> None:
        """Compile every kernel before all workers do it at once, unless their daemon does."""
        log.info("compiling kernels (cached after the first time)")
        if self._daemon is None:
            _compile()

    def compiled(self) -> None:
        """Wait until the workers' daemon has compiled every kernel; do it here if it could not."""
        if self._daemon is not None and not self._daemon.loaded():
            _compile()

    def close(self) -> None:
        if not self._taken:
            self._abandon()

    def _run(self) -> None:
        try:
            self._made = self._make()
        except BaseException as error:  # noqa: BLE001 - `session` raises it
            self._made = error
        finally:
            self._ready.set()


def _compile() -> None:
    from streamydb.pipeline.warmup import warm_up  # loads all of the engine

    warm_up()


def launched(config: PipelineConfig) -> SparkLaunch:
    """Begin to start Spark for a run of the pipeline; it boots while the caller goes on.

    Why it could not begin (no Java, a missing jar) is told to who wants the session, too.
    """
    try:
        processes = start_processes(*_what(config))
    except (StreamyError, OSError) as error:
        return SparkLaunch(partial(_refuse, error), Jvm().kill)
    from pyspark.testing import utils  # noqa: F401 - PySpark needs it to ask the JVM anything

    return SparkLaunch(partial(_session, config, processes.jvm), Jvm().kill, processes.daemon)


def _refuse(error: Exception) -> NoReturn:
    raise error


def _session(config: PipelineConfig, jvm: EarlyJvm | None) -> SparkSession:
    spark = session(*_what(config), jvm)
    if not config.store:
        forget_defaults(spark)
    return spark


def _what(config: PipelineConfig) -> tuple[str, str | None, dict[str, str]]:
    master = config.master
    if config.may_have_gears and master is not None:
        master = with_slots(master, GEAR_SLOTS)
    return f"streamydb {config.settings.database}", master, added_settings(config)


def added_settings(config: PipelineConfig) -> dict[str, str]:
    """Return Spark's settings for a pipeline beside those of spark-defaults.conf."""
    added = dict(STORE_SETTINGS) if config.store else {}
    if config.may_have_gears:
        added[PIPELINED] = "true"
        added[POLLING_DELAY] = _FOLLOWING_DELAY
    if config.small and config.master is not None:
        added[DRIVER_OPTIONS] = driver_options(SMALL_JAVA)
    return {**added, **config.spark_conf}
