"""The worker's end of Spark's socket: all bytes come, and nothing waits that is there."""

from __future__ import annotations

import io
import itertools
import os
import random
import socket

import pyarrow as pa
import pytest

from streamydb.errors import ConfigurationError
from streamydb.pipeline.realtime import wire as module
from streamydb.pipeline.realtime.wire import BUFFER_BYTES, PIPELINED, Wire, main
from tests.support.seeds import seeds
from tests.support.wires import ends, stream_of


def batches(sizes: list[int]) -> list[pa.RecordBatch]:
    """Return batches of so many rows each."""
    return [
        pa.RecordBatch.from_pydict({"n": pa.array([number] * n, pa.int64())})
        for number, n in enumerate(sizes)
    ]


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(20, 8)))
def test_batches_come_whole_however_the_bytes_come(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(seed)
    monkeypatch.setattr(module, "_READ_BYTES", dice.choice([1, 100, 1 << 18]))
    sizes = [dice.choice([0, 1, 50, 3_000]) for _ in range(dice.randint(1, 20))]
    parts = [dice.choice([1, 7, 64, 5_000]) for _ in range(8)]
    with ends() as both:
        thread = both.send(stream_of(batches(sizes)), itertools.cycle(parts))
        found = [batch.num_rows for batch in both.batches()]
        thread.join(20)
    assert found == sizes


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(20, 8)))
def test_it_is_ready_while_anything_can_be_read(seed: int) -> None:
    dice = random.Random(seed)
    with ends() as both:
        wire, left = both.wire, 0
        for _ in range(60):
            if dice.random() < 0.5:
                size = dice.randint(1, 40)
                both.spark.sendall(b"x" * size)
                left += size
            assert wire.ready() == (left > 0)
            taken = dice.randint(0, left)
            assert wire.read(taken) == b"x" * taken
            left -= taken
        both.spark.close()
        assert wire.ready(), "the end can be read, too"
        assert wire.read(left + 5) == b"x" * left


def test_nothing_goes_out_before_it_is_flushed() -> None:
    with ends() as both:
        both.wire.output.write(b"all of a batch" * 9)
        both.spark.setblocking(False)
        with pytest.raises(BlockingIOError):
            both.spark.recv(1)
        both.wire.flush()
        assert both.spark.recv(1_000) == b"all of a batch" * 9


def test_what_was_written_is_sent_before_it_waits_for_more() -> None:
    """Functions that answer a batch with another one need not flush."""
    with ends() as both:
        both.spark.sendall(b"question")
        assert both.wire.read(8) == b"question"
        both.wire.output.write(b"answer")
        both.spark.shutdown(socket.SHUT_WR)
        assert both.wire.read(1) == b""
        assert both.spark.recv(100) == b"answer"


@pytest.mark.parametrize("ours", [False, True])
def test_only_workers_of_the_gear_read_in_their_own_thread(
    ours: bool,  # noqa: FBT001 - a parameter
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(PIPELINED, "1")
    monkeypatch.setenv("SPARK_BUFFER_SIZE", BUFFER_BYTES if ours else "65536")
    monkeypatch.setattr(module, "_of_this_worker", [])
    seen: list[object] = []

    def of_pyspark(infile: object, outfile: io.BufferedWriter) -> None:
        seen.extend([infile, os.environ.get(PIPELINED)])
        outfile.write(b"the last words")

    monkeypatch.setattr(module, "_main", of_pyspark)
    with ends() as both, both.spark.makefile("rb") as infile, both.spark.makefile("wb") as outfile:
        both.wire.output.write(b"a task")
        both.wire.flush()
        main(infile, outfile)
        assert both.spark.recv(100) == b"a task", "nothing of it was read ahead"
        assert isinstance(seen[0], Wire) == ours
        assert seen[1] == (None if ours else "1")
        outfile.flush()
        assert os.read(both.wire.fileno(), 100) == b"the last words"
    if not ours:
        with pytest.raises(ConfigurationError, match=r"spark\.python\.daemon\.module"):
            module.of_this_worker()


def test_a_worker_that_spark_needs_no_more_ends_without_a_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_main", lambda *_: pytest.fail("PySpark's worker would answer"))
    ours, spark = socket.socketpair()
    with ours, ours.makefile("rb") as infile, ours.makefile("wb") as outfile:
        spark.close()
        with pytest.raises(SystemExit) as ended:
            main(infile, outfile)
    assert ended.value.code, "its daemon takes no further task for it"
