"""Latency under an open loop: transactions are due at a fixed rate whatever the database does.

A latency runs from the instant at which the transaction was due, not from when it was sent, to when
a client has read its result: no coordinated omission (Tene, "How NOT to measure latency").
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Self

import numpy as np

from bench.appending import Appender, linger_ms
from bench.engine import Engine
from bench.load_profile import Floats, LoadProfile
from bench.waiting import Ends, wait_until
from bench.workload import Workload
from streamydb.frames.addresses import SPARE_BYTES
from streamydb.frames.jit import kernel
from streamydb.frames.json_tokens import integer
from streamydb.frames.table import Ragged, Texts
from streamydb.kafka.clients import FOLLOWING, column_reader
from streamydb.kafka.columns import RecordColumns
from streamydb.kafka.librdkafka import compile_kernels
from streamydb.read_model.recognise import behind

__all__ = ["Arrivals", "Floats", "open_loop", "summary"]

_EDGES_MS: Final = (
    10, 20, 50, 100, 150, 200, 250, 300, 350, 400, 450, 500, 600, 700, 800, 1000, 1500, 2000, 5000,
    10000,
)  # fmt: skip
_LATE_S_MAX: Final = 120.0
_TICK_S_MAX: Final = 0.01  # so often delivery reports are taken, at least
_TICK_S_MIN: Final = 0.001  # a client that lingers waits so long for more, at least
_NOTE_S: Final = 0.2
_RECORDS_MAX: Final = 5_000
_POLL_S: Final = 0.1


@kernel
def _note(at: Floats, keys: Texts, prefix: Texts, first: int, now_s: float) -> int:
    """Note the arrival of results that had not arrived; return how many there were.

    A key is an id: the prefix and a number. Others are passed over.
    """
    noted = 0
    for i in range(len(keys.offsets) - 1):
        end = keys.offsets[i + 1]
        begin = behind(keys.data, keys.offsets[i], end, prefix, 0)
        if begin < 0:
            continue
        stop, number = integer(keys.data, begin, end)
        number -= first
        if stop == end and 0 <= number < len(at) and np.isnan(at[number]):
            at[number] = now_s
            noted += 1
    return noted


class Arrivals:
    """Reads results in the background and notes when each arrived.

    Attributes:
        at: per transaction, its first arrival by the monotonic clock in seconds, NaN before it.
        missing: how many have not arrived.
    """

    def __init__(
        self,
        connection: Mapping[str, str],
        results: Ends,
        first: int,
        count: int,
        id_prefix: bytes = b"t",
    ) -> None:
        """Wait for the results of the ids `<id_prefix><first>` and the `count` - 1 after it."""
        self._first = first
        self._prefix = Ragged.of([id_prefix, bytes(SPARE_BYTES)]).texts()
        self.at: Floats = np.full(count, np.nan)
        self.missing = count
        compile_kernels()
        self.note(RecordColumns.of([]), 0.0)
        self._reader = column_reader(connection, FOLLOWING)
        self._reader.assign(results.topic, results.ends())
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="arrivals", daemon=True)

    def __enter__(self) -> Self:
        """Begin to read."""
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        """End."""
        self._stop.set()
        self._thread.join()
        self._reader.close()

    def note(self, records: RecordColumns, now_s: float) -> None:
        """Note results that were read at a time."""
        self.missing -= _note(self.at, records.keys.texts(), self._prefix, self._first, now_s)

    def _run(self) -> None:
        while not self._stop.is_set():
            records = self._reader.take(_RECORDS_MAX, _POLL_S).records
            self.note(records, time.monotonic())


def open_loop(
    engine: Engine,
    workload: Workload,
    *,
    first: int,
    rate: float,
    warm_up_s: float,
    seconds: float,
    note: Callable[[str], object],
    rise_s: float = 0.0,
) -> tuple[Floats, int]:
    """Offer `rate` transactions a second, numbered from `first`.

    For `rise_s`, a part of the warm-up, the rate grows evenly from nothing. From 2,000/s on, the
    client lingers (`bench.appending.linger_ms`).

    Returns:
        The latencies in seconds of those due after the warm-up, and how many were sent in all.

    Raises:
        BenchError: the pipeline failed, or results did not come.
    """
    due_s = LoadProfile.rising(rate, rise_s, warm_up_s + seconds).due_s()
    warm, count = int(np.searchsorted(due_s, warm_up_s)), len(due_s)
    lingers_ms = linger_ms(rate)
    least_s = _TICK_S_MIN if lingers_ms else 0.0
    appender = Appender(engine.connection, engine.names.transactions, linger_ms=lingers_ms)
    payloads = workload.payloads(first, count)
    with Arrivals(engine.connection, engine.results, first, count) as arrivals:
        begun = time.monotonic() + 0.1
        sent, noted_s = 0, 0.0
        while sent < count:
            due = int(np.searchsorted(due_s, time.monotonic() - begun, "right"))
            if due > sent:
                appender.send(payloads[sent:due])
                sent = due
            if time.monotonic() - noted_s > _NOTE_S:
                noted_s = time.monotonic()
                note(f"{sent:,} of {count:,} sent, {count - arrivals.missing:,} answered")
            appender.poll()
            next_s = begun + due_s[min(sent, count - 1)] - time.monotonic()
            time.sleep(min(_TICK_S_MAX, max(least_s, next_s)))
        appender.flush()
        wait_until(
            lambda: arrivals.missing == 0, "all results were there", _LATE_S_MAX, check=engine.check
        )
    latencies: Floats = arrivals.at - (begun + due_s)
    return latencies[warm:], count


def summary(latencies_s: Floats) -> dict[str, Any]:
    """Percentiles and a histogram, in milliseconds."""
    ms = latencies_s * 1000
    p50, p90, p99, p999 = (round(float(q), 1) for q in np.percentile(ms, (50, 90, 99, 99.9)))
    counts, _ = np.histogram(ms, bins=(-np.inf, *_EDGES_MS, np.inf))
    return {
        "p50": p50, "p90": p90, "p99": p99, "p999": p999, "max": round(float(ms.max()), 1),
        "count": len(ms),
        "histogram": {"up_to_ms": [*_EDGES_MS, None], "count": counts.tolist()},
    }  # fmt: skip
