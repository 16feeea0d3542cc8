"""The worker of the real-time gear, without Spark: it gives and tells what the core does."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from streamydb.frames.plans import Life
from streamydb.frames.table import Ragged
from streamydb.local.shard_files import LmdbValues
from streamydb.pipeline.realtime import wire
from streamydb.pipeline.realtime.confirmations import Confirmations, output_hashes
from streamydb.pipeline.realtime.core import RealTimeShard, Surroundings, TailRecord
from streamydb.pipeline.realtime.files import opened_base
from streamydb.pipeline.realtime.host import GearLeft, RealTimeHost
from streamydb.pipeline.realtime.messages import Began, Channel, Executed, Left, Play
from streamydb.procedures.modules import NO_MODULES
from streamydb.records.rulings import NO_RULINGS
from streamydb.txn_processor import outputs as o
from tests.support.micro_batches import CONFIG, MicroBatches, put
from tests.support.packs import pack_rows
from tests.support.seeds import seeds
from tests.support.wires import ends, stream_of

GEAR = msgspec.structs.replace(CONFIG, incarnation="gear")
TOPICS = {"bank.results": o.RESULTS, "bank.changes": o.CHANGES, "bank.deadletters": o.DEAD_LETTERS}


def _rows(records: list[TailRecord]) -> pa.RecordBatch:
    """A batch as Spark gives it: each record is followed by a row of nulls."""
    rows: list[TailRecord | tuple[None, None, None]] = []
    for record in records:
        rows += [record, (None, None, None)]
    columns = [list(column) for column in zip(*rows, strict=True)]
    types = (pa.int64(), pa.int64(), pa.binary())
    arrays = [pa.array(c, t) for c, t in zip(columns, types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=["offset", "append_ms", "value"])


def _packs(records: list[TailRecord], dice: random.Random) -> Iterator[pa.RecordBatch]:
    """Batches as Spark gives them when it packs: a row a batch, empty ones between them."""
    for pack in (records, []) if dice.random() < 0.5 else (records,):
        yield pack_rows([pack])


class Driver:
    """The driver's end: says that the gear leads, and hears until the worker has ended."""

    def __init__(self, path: Path) -> None:
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(path))
        self.listener.listen(1)
        self.heard: list[object] = []
        self.leads = threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        channel = Channel(self.listener.accept()[0])
        self.heard.append(channel.receive())
        channel.send(Play(leads=True, covered=1))
        while (said := channel.receive()) is not None:
            self.heard.append(said)
            self.leads.set()
        channel.close()

    def close(self) -> None:
        self.thread.join(20)
        self.listener.close()


def _records(dice: random.Random) -> list[TailRecord]:
    found = []
    offset, now_ms = 1, 2_000
    for number in range(dice.randint(1, 40)):
        value: bytes | None = msgspec.json.encode(
            put(f"n{dice.randrange(30)}", f"k{dice.randrange(4)}", number)
        )
        if dice.random() < 0.1:
            value = dice.choice([b"{", None, b"\xff"])
        found.append(TailRecord(offset, now_ms, value))
        offset, now_ms = offset + dice.choice([1, 1, 1, 2]), now_ms + dice.randrange(3)
    return found


def _written(batches: list[pa.RecordBatch]) -> list[tuple[int, bytes | None, bytes | None]]:
    rows = [row for batch in batches for row in batch.to_pylist()]
    return [(TOPICS[r["topic"]], r["key"], r["value"]) for r in rows if r["topic"] in TOPICS]


def _expected(
    records: list[TailRecord], local: Path
) -> list[tuple[int, bytes | None, bytes | None]]:
    opened = opened_base(local, CONFIG)
    assert opened is not None
    shard = RealTimeShard(Surroundings(GEAR, Life("other"), 1), opened)
    shard.play(leads=True, covered=1)
    groups = [shard.take([record]) for record in records]
    opened.values.close()
    return [
        (each.topic, key or None, value or None)
        for group in groups
        for each in group.outputs
        if each.topic in TOPICS.values()
        for key, value in zip(each.keys.tolist(), each.values.tolist(), strict=True)
    ]


@pytest.mark.fault(
    47, "Spark's batch ends under the worker of the real-time gear",
    "the driver is told, so the other gear leads; every output that was told of was given",
)  # fmt: skip
@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(12, 5)))
@pytest.mark.parametrize("packed", [False, True])
def test_it_gives_what_the_core_gives_however_records_come(
    seed: int,
    packed: bool,  # noqa: FBT001 - a parameter
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dice = random.Random(seed)
    micro = MicroBatches(tmp_path)
    micro.execute(put("t1", "k0", 1))
    records = _records(dice)
    driver = Driver(tmp_path / "socket")
    host = RealTimeHost(
        CONFIG,
        GEAR,
        str(tmp_path),
        str(tmp_path / "socket"),
        1,
        Life("life"),
        1,
        NO_MODULES,
        NO_RULINGS,
    )

    def batches() -> Iterator[pa.RecordBatch]:
        at = 0
        while at < len(records):
            size = dice.choice([1, 1, 3, 9])
            part = records[at : at + size]
            yield from _packs(part, dice) if packed else [_rows(part)]
            at += size

    def sizes() -> Iterator[int]:
        driver.leads.wait(20)  # what comes before that waits in the sorter, which is fine, too
        while True:
            yield dice.choice([1, 64, 1_000])

    given: list[pa.RecordBatch] = []
    with ends() as both:
        monkeypatch.setattr(wire, "_of_this_worker", [both.wire])
        sending = both.send(stream_of(batches()), sizes())
        with pytest.raises(GearLeft, match="ended"):
            given.extend(host(both.batches()))
        sending.join(20)
    driver.close()
    written = _written(given)
    changes = [row for row in written if row[0] == o.CHANGES]
    expected = _expected(records, tmp_path)
    assert changes == [row for row in expected if row[0] == o.CHANGES]
    assert sorted(map(repr, written)) == sorted(map(repr, expected))
    began, *executed, left = driver.heard
    assert began == Began(1, 1, began.pid) if isinstance(began, Began) else False
    assert left == Left("ended", "Spark's batch has ended")
    confirmations = Confirmations()
    confirmed = []
    for said in executed:
        assert isinstance(said, Executed)
        confirmed += confirmations.add(said)
    for topic, key, value in written:
        hashes = output_hashes(topic, Ragged.of([key or b""]), Ragged.of([value or b""]))
        confirmed += confirmations.see(hashes)
    assert len(confirmations) == 0, "every output that was told of was given"
    assert confirmed[-1].position == records[-1].offset + 1
    LmdbValues.close(micro.folder)
