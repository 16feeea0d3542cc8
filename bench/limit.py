"""Running the copy limit as a process, over a part of an engine's log."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import msgspec
from confluent_kafka import Consumer, TopicPartition

from bench.copy_limit import CopyTask
from bench.engine import Engine
from bench.errors import BenchError
from streamydb.kafka.connection import watermarks

__all__ = ["CopyLimit", "copy_limit", "mean_bytes"]

_TIMEOUT_S: Final = 900.0
_SAMPLE: Final = 2000


class CopyLimit(msgspec.Struct, frozen=True):
    """What the stateless job did: transactions a second, median and all repetitions."""

    txn_per_s: float
    runs: list[float]


def copy_limit(
    engine: Engine, first: int, last: int, changes_each: float, repetitions: int
) -> CopyLimit:
    """Measure the copy limit over the transactions `first` to `last`; the pipeline is stopped.

    Raises:
        BenchError: the job failed.
    """
    task = CopyTask(
        bootstrap=engine.bootstrap,
        source=engine.names.transactions,
        database="copy-limit",
        first=first,
        last=last,
        cores=engine.options.cores,
        shards=engine.options.shards,
        max_offsets=engine.options.max_offsets,
        folder=str(engine.folder),
        result_bytes=mean_bytes(engine.connection, engine.names.results),
        change_bytes=mean_bytes(engine.connection, engine.names.changes),
        changes_each=changes_each,
        repetitions=repetitions,
    )
    answer = _run([sys.executable, "-m", "bench.copy_limit", _text(task)], engine)
    runs: list[float] = msgspec.json.decode(answer.splitlines()[-1])["txn_per_s"]
    return CopyLimit(statistics.median(runs), runs)


def mean_bytes(connection: Mapping[str, str], topic: str) -> int:
    """The mean size of the values at the end of each partition of a topic; 1 if it is empty."""
    settings = {"group.id": "streamydb-bench", "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer({**connection, **settings, "enable.partition.eof": True})
    try:
        sizes: list[int] = []
        for number in consumer.list_topics(topic, timeout=10).topics[topic].partitions:
            low, high = watermarks(consumer, topic, number, 10)
            if high > low:
                consumer.assign([TopicPartition(topic, number, max(low, high - _SAMPLE))])
                messages = consumer.consume(min(_SAMPLE, high - low), 2)
                sizes += [len(m.value() or b"") for m in messages if m.error() is None]
        return max(1, round(sum(sizes) / max(1, len(sizes))))
    finally:
        consumer.close()


def _text(task: CopyTask) -> str:
    return msgspec.json.encode(task).decode()


def _run(command: list[str], engine: Engine) -> str:
    """Run the job in a process group of its own; what it printed."""
    log = engine.folder / "copy-limit.log"
    with log.open("wb") as errors:
        job = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
            start_new_session=True, text=True,
            env={**os.environ, "STREAMYDB_HOME": str(engine.folder / "home")},
        )  # fmt: skip
        try:
            answer, _ = job.communicate(timeout=_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise BenchError(f"the copy limit took longer than {_TIMEOUT_S:.0f} s") from error
        finally:
            with suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
            job.wait()
    if job.returncode != 0:
        lines = log.read_text(errors="replace").splitlines()[-20:]
        raise BenchError("the copy limit's job failed; its log ends:\n" + "\n".join(lines))
    return answer
