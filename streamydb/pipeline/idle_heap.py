"""Spark's JVM gives memory of its heap back when no transactions come.

A heap grows under load, and Java keeps it: its collector runs when memory is needed, and without
load none is. So the pipeline, which knows that nothing comes, asks for a collection, after which
the heap is as large as what lives in it and a little more (`MaxHeapFreeRatio` in
spark-defaults.conf).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext

from streamydb.pipeline.adaptive import BatchSize
from streamydb.pipeline.background import Background

log = logging.getLogger("streamydb.pipeline")

_LOOK_S: Final = 5.0

IDLE_LOOKS: Final = 3
"""So many looks after the last transaction the heap is collected: then 10 to 15 s have passed."""

_GROWN_MB: Final = 64
"""A heap that has grown by less since the last time is left alone."""


_COLLECT: Final = """
    System.gc();
    try {
        java.lang.management.ManagementFactory.getPlatformMBeanServer().invoke(
            new javax.management.ObjectName("com.sun.management:type=DiagnosticCommand"),
            "systemTrimNativeHeap", null, null
        );
    } catch (javax.management.JMException none) {
        return;  // this Java has no such command; nothing is lost without it
    }
"""
"""Java that Spark's compiler makes a class of: py4j cannot call what is inside the JVM."""


class Heap(NamedTuple):
    """The heap of a JVM.

    Attributes:
        size_mb: asks for its present size, in MB.
        collect: collects it, and returns when that is done.
    """

    size_mb: Callable[[], float]
    collect: Callable[[], None]


def spark_heap() -> Heap:
    """Return the heap of Spark's JVM. With it the JVM gives back what native code has freed, if it
    can.
    """
    gateway: Any = SparkContext._gateway  # noqa: SLF001 - PySpark shows it nowhere else
    jvm = gateway.jvm

    def collect() -> None:
        script = jvm.org.codehaus.janino.ScriptEvaluator()
        try:
            script.cook(_COLLECT)
            script.evaluate(gateway.new_array(jvm.Object, 0))
        except Py4JJavaError as error:
            log.info("only the heap itself is collected: %s", error.java_exception)
            jvm.System.gc()

    return Heap(lambda: jvm.java.lang.Runtime.getRuntime().totalMemory() / 1e6, collect)


class IdleHeap(Background):
    """Looks every few seconds whether nothing comes any more, in a thread of its own."""

    def __init__(self, heap: Heap) -> None:
        """Nothing has come yet; the start itself counts as load."""
        super().__init__("streamydb-idle-heap")
        self._heap = heap
        self._came = True
        self._idle_looks = 0
        self._left_mb = 0.0

    def note(self, size: BatchSize) -> None:
        """Note a micro-batch; one that brings only feedback is none."""
        if size.transactions:
            self._came = True

    def look(self) -> None:
        """Have the heap collected, if nothing has come for some looks, and it has grown since.

        Raises:
            Py4JError: the JVM does not answer.
        """
        came, self._came = self._came, False
        self._idle_looks = 0 if came else self._idle_looks + 1
        if self._idle_looks != IDLE_LOOKS:
            return
        before_mb = self._heap.size_mb()
        if before_mb - self._left_mb < _GROWN_MB:
            return
        self._heap.collect()
        self._left_mb = self._heap.size_mb()
        log.info("nothing comes: a heap of %.0f MB has become %.0f MB", before_mb, self._left_mb)

    def _run(self) -> None:
        while not self._stop.wait(_LOOK_S):
            try:
                self.look()
            except (Py4JError, OSError) as error:  # its end is told by whoever waits for it
                log.info("the heap is left as it is: %s", error)
                return
