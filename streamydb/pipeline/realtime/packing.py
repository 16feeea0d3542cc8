"""Packing: the rows in which Spark hands records to Python without holding one back.

`RecordPacking.java` packs what has come while Python computed into one row. Spark's own Janino
compiles that text in the driver's JVM, so nothing but a Java runtime is needed. Where it cannot, or
where Spark does not take the class, each record is followed by a row of nulls instead: each of them
is a batch of Arrow's, and that ends near 2,000 records a second.
"""

from __future__ import annotations

import logging
import threading
import zipfile
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import SparkFiles
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

__all__ = ["Packing"]

log = logging.getLogger("streamydb.realtime")

_CLASS: Final = "streamydb.RecordPacking"
_SOURCE: Final = "RecordPacking.java"

PACK_RECORDS_MAX: Final = 2_000
PACK_BYTES_MAX: Final = 4 << 20
"""Of one row. The same again may wait in the JVM, and one record is always taken."""

_APART_NS: Final = 1_000_000
"""So long after a row the next one may come."""


class Packing:
    """The class that packs, made for one Spark application when it is first asked for.

    Attributes:
        session: of the records.
    """

    def __init__(self, session: SparkSession, *, wanted: bool = True) -> None:
        """``wanted``: False: each record is followed by a row of nulls."""
        self.session = session
        self._wanted = wanted
        self._function: Any = None
        self._lock = threading.Lock()

    def rows(self, records: DataFrame) -> DataFrame:
        """Return records as rows for `mapInArrow`, which `rows.records_of` reads.

        ``records``: offset BIGINT and append_ms BIGINT, never null, and value BINARY.
        """
        function = self._made()
        if function is None:
            record = f.struct(*records.columns)  # not a text: see `hosts.BLOCK_SCHEMA`
            return records.select(f.inline(f.array(record, f.lit(None))))
        jvm: Any = self.session._jvm  # noqa: SLF001 - PySpark cannot call a class of the JVM's
        of_bytes = jvm.org.apache.spark.sql.Encoders.BINARY()
        packed = records._jdf.mapPartitions(function, of_bytes)  # noqa: SLF001
        return DataFrame(packed, records.sparkSession)

    def _made(self) -> Any:
        """Return the function, made if it is missing; None if it cannot be made."""
        with self._lock:
            if self._wanted and self._function is None:
                try:
                    self._function = _function(self.session)
                except (Py4JError, OSError, TypeError) as error:
                    self._wanted = False
                    why = (str(error) or type(error).__name__).splitlines()[0]
                    log.warning("the real-time gear takes records one by one: %s", why)
            return self._function


def _function(session: SparkSession) -> Any:
    """Compile the class, have all tasks find it, and make one.

    The jar lies in the application's folder for files, which Spark removes at its end.

    Raises:
        Py4JError: the JVM cannot.
        OSError: the text cannot be read, or the jar cannot be written.
        TypeError: the JVM has no Janino.
    """
    jvm: Any = session._jvm  # noqa: SLF001
    text = files("streamydb.pipeline.realtime").joinpath(_SOURCE).read_text(encoding="utf-8")
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    of_spark = session._jsparkSession.getClass().getClassLoader()  # noqa: SLF001
    compiler.setParentClassLoader(of_spark)
    compiler.cook(text)
    classes: dict[str, bytes] = dict(compiler.getBytecodes())
    context: Any = session.sparkContext
    jar = Path(SparkFiles.getRootDirectory()) / "packing" / f"{_CLASS}.jar"
    jar.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(jar, "w") as archive:
        for name, code in sorted(classes.items()):
            archive.writestr(f"{name.replace('.', '/')}.class", code)
    context._jsc.addJar(str(jar))  # noqa: SLF001
    arguments = context._gateway.new_array(jvm.java.lang.Object, 3)  # noqa: SLF001
    arguments[0] = PACK_RECORDS_MAX
    arguments[1] = jvm.java.lang.Long.valueOf(PACK_BYTES_MAX)
    arguments[2] = jvm.java.lang.Long.valueOf(_APART_NS)
    return compiler.getClassLoader().loadClass(_CLASS).getConstructors()[0].newInstance(arguments)
