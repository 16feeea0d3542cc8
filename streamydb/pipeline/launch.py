"""Start Spark beside the rest of a start, which mostly waits for Kafka."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import NoReturn

from pyspark.sql import SparkSession

from streamydb.errors import StreamyError
from streamydb.pipeline.config import PipelineConfig
from streamydb.pipeline.daemon import EarlyDaemon
from streamydb.pipeline.jvm import EarlyJvm, Jvm
from streamydb.pipeline.session import (
    DRIVER_OPTIONS,
    GEAR_SLOTS,
    PIPELINED,
    STORE_SETTINGS,
    driver_options,
    forget_defaults,
    session,
    start_processes,
    with_slots,
)
from streamydb.pipeline.small import SMALL_JAVA

log = logging.getLogger("streamydb.pipeline")


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
        """Compile every kernel, unless the workers' daemon does:
        before workers do it all at once.
        """
        log.info("compiling kernels (cached after the first time)")
        if self._daemon is None:
            _compile()

    def compiled(self) -> None:
        """Wait until the workers' daemon has compiled every kernel; do it here if it could not."""
        if self._daemon is not None and not self._daemon.loaded():
            _compile()

    def close(self) -> None:
        """End what was begun, if nobody has taken the session."""
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
    added = dict(STORE_SETTINGS) if config.store else {}
    master = config.master
    if config.may_have_gears:
        added[PIPELINED] = "true"
        master = None if master is None else with_slots(master, GEAR_SLOTS)
    if config.small and master is not None:
        added[DRIVER_OPTIONS] = driver_options(SMALL_JAVA)
    name = f"streamydb {config.settings.database}"
    return name, master, {**added, **config.spark_conf}
