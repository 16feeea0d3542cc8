"""The worker's end of Spark's socket, read by the one thread that executes.

PySpark reads the input of a pipelined function ahead, in a thread of its own. A thread that reads
beside one that executes takes Python's lock from it at each kernel and call that gives the lock up,
a hundred times a group. So the worker of the real-time gear looks at the socket between two groups.

Our daemon has its workers begin here (`pipeline.daemon`). The rest of what PySpark's worker does
stays as it is.
"""

from __future__ import annotations

import os
import select
import socket
import sys
from contextlib import suppress
from typing import BinaryIO, Final

from pyspark import worker

from streamydb.errors import ConfigurationError

__all__ = ["BUFFER_BYTES", "PIPELINED", "Wire", "main", "of_this_worker", "send_written"]

BUFFER_BYTES: Final = "64"
"""Of Spark's writer to the worker, which waits until its buffer is full. No other query of ours has
this size, so it also tells the workers of the real-time gear from others.
"""

PIPELINED: Final = "SPARK_PIPELINED_UDF"  # Spark tells a worker with it to read ahead
_SIZE: Final = "SPARK_BUFFER_SIZE"
_READ_BYTES: Final = 1 << 18
_WRITE_BYTES: Final = 1 << 20

_NOT_NEEDED: Final = -1  # the exit code with which PySpark's daemon ends a worker

_main: Final = worker.main


class Wire:
    """Both directions of the socket.

    Attributes:
        output: what is written to it is sent by `flush`.
    """

    def __init__(self, infile: BinaryIO, outfile: BinaryIO) -> None:
        """``infile``, ``outfile``: as PySpark's daemon opens them; nothing was read ahead yet."""
        self._infile = infile
        self._fd = infile.fileno()
        self._read = b""
        self._at = 0
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)
        self.output = os.fdopen(os.dup(outfile.fileno()), "wb", _WRITE_BYTES)
        self.closed = False

    def fileno(self) -> int:
        return self._fd

    def read(self, size: int) -> bytes:
        """Wait for ``size`` bytes; return fewer at the end of the stream only.

        What was written is sent before it waits, for functions that do not flush.
        """
        end = self._at + size
        if end <= len(self._read):
            found = self._read[self._at : end]
            self._at = end
            return found
        parts = [self._read[self._at :]]
        missing = size - len(parts[0])
        self._read, self._at = b"", 0
        self.flush()
        while missing > 0:
            part = os.read(self._fd, max(missing, _READ_BYTES))
            if not part:
                break
            if len(part) > missing:
                self._read, self._at = part, missing
                part = part[:missing]
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def ready(self) -> bool:
        """Return True if something can be read, which may be the end of the stream."""
        return self._at < len(self._read) or bool(self._poll.poll(0))

    def flush(self) -> None:
        """Send what was written."""
        self.output.flush()


_of_this_worker: list[Wire] = []


def main(infile: BinaryIO, outfile: BinaryIO) -> None:
    """Be PySpark's worker; of a function of the real-time gear, with a `Wire` of its own.

    Raises:
        SystemExit: Spark closed the socket, as it needs this worker no more. PySpark's worker would
            answer that, and leave a traceback in the log.
    """
    if _closed(infile.fileno()):
        sys.exit(_NOT_NEEDED)
    if os.environ.get(_SIZE) != BUFFER_BYTES:
        _outputs[:] = [outfile]
        _main(infile, outfile)
        return
    os.environ.pop(PIPELINED, None)
    wire = Wire(infile, outfile)
    _of_this_worker[:] = [wire]
    try:
        _main(wire, wire.output)
    finally:
        with suppress(ConnectionError):  # Spark cancelled the task, and reads nothing any more
            wire.flush()


def _closed(fd: int) -> bool:
    """Wait until something comes on a socket; return True if that is its end. Reads nothing."""
    with socket.socket(fileno=os.dup(fd)) as same:
        try:
            return not same.recv(1, socket.MSG_PEEK)
        except ConnectionError:
            return True


_outputs: list[BinaryIO] = []


def send_written() -> None:
    """Send to Spark what this worker has written so far, if our daemon has forked it.

    PySpark leaves the last kilobytes of a batch in a buffer until more is written, and Spark waits
    for them.
    """
    for output in _outputs:
        output.flush()


def of_this_worker() -> Wire:
    """Return the wire of this process.
    Raises ConfigurationError: the process was not forked by our daemon.
    """
    if not _of_this_worker:
        raise ConfigurationError(
            "the worker of the real-time gear was not begun by streamydb.pipeline.daemon; leave "
            "spark.python.daemon.module and spark.python.use.daemon as they are"
        )
    return _of_this_worker[0]
