"""The identity of a change has its key: two keys that end at one seq may share their number.

Every consumer that drops repetitions is given such removals, written again as a pipeline does after
a crash, and must tell each change once. A search of the sources finds consumers that have no test.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
import pytest

from simulator.cluster import WrittenRecord
from simulator.judge import SeedOutcome, _first_writes
from streamydb.client import Change as ClientChange
from streamydb.client.requests import Event, Progress, Selection
from streamydb.client.session import Session
from streamydb.client.watch_core import Watching, decode_event
from streamydb.facade.feed import Merger
from streamydb.kafka.connect.core import PartitionCopy
from streamydb.records import Change, Resolved, change_name, decode_change, encode_resolved
from streamydb.records.connect import CopyProgress, connect_key
from streamydb.records.expiry import is_removal, removal_number
from streamydb.spark import rows
from streamydb.spark.rows import SeenRecords
from streamydb.testing import MemoryHost
from streamydb.txn_processor import outputs as o
from streamydb.verify.check import CheckReport, Comparison, Expected, Output
from streamydb.verify.check.run import _expect
from streamydb.verify.check.workflows import Workflows
from streamydb.verify.oracle.core import Oracle
from streamydb.verify.oracle.outputs import OutputRecord
from tests.support.seeds import seeds

ROOT: Final = Path(__file__).resolve().parents[3]
SHARING: Final = ("s/68816870", "s/107919992")
"""Keys whose removals have one number."""

Told = tuple[int, str]
"""The seq and key of a removal."""


class Written(NamedTuple):
    """A record of the changes: a change, a tombstone (no value), or a resolved record (no key)."""

    key: bytes | None
    value: bytes | None

    @property
    def record(self) -> Change | Resolved:
        return decode_change(self.value or b"")


class Sample(NamedTuple):
    """The changes of a small database as its pipeline may have written them."""

    written: list[Written]
    removals: list[Told]
    expected: Expected
    outputs: list[OutputRecord]


def sampled(seed: int) -> Sample:
    """Keys that end together, in several seqs, among others; each plan is written once or twice."""
    rng, oracle, expected = random.Random(seed), Oracle("bank"), Expected()
    written: list[Written] = []
    outputs: list[OutputRecord] = []
    plan: list[Written] = []
    for offset in range(rng.randint(6, 14)):
        keys = [*SHARING, "other", "s/1"] if offset % 2 == 0 else ["own"]
        rng.shuffle(keys)
        updates = [{"op": "put", "key": key, "value": offset, "ttl_ms": 5} for key in keys]
        raw = msgspec.json.encode({"id": str(offset), "updates": updates})
        made = oracle.apply(raw, 0, offset, 1000 * (offset + 1))
        _expect(expected, 0, offset, made)
        outputs += made
        plan += [Written(each.key, each.value) for each in made if each.topic == "changes"]
        if rng.random() < 0.5:
            written += again(rng, plan)
            written.append(resolved(offset + 1))
            plan = []
    written += [*again(rng, plan), resolved(oracle.next_seq - 1)]
    ended = {
        (each.record.source.seq, (each.key or b"").decode())
        for each in written
        if each.value is not None
        and isinstance(each.record, Change)
        and is_removal(each.record.transaction.total_order)
    }
    return Sample(written, sorted(ended), expected, outputs)


def again(rng: random.Random, plan: list[Written]) -> list[Written]:
    """A plan of which a first attempt was written in part."""
    return plan[: rng.choice([0, rng.randint(0, len(plan)), len(plan)])] + plan


def resolved(seq: int) -> Written:
    return Written(None, encode_resolved(Resolved(seq, 1000 * seq, {"0": seq})))


def events(sample: Sample) -> Iterator[tuple[int, Written]]:
    return ((n, each) for n, each in enumerate(sample.written) if each.value is not None)


def by_the_feed(sample: Sample) -> list[Told]:
    merger, told = Merger(1, 0), []
    for _, each in events(sample):
        batch = merger.take(0, each.key, each.record)
        told += [(e.seq, e.key) for e in (batch.changes if batch else ()) if is_removal(e.number)]
    assert not merger.is_ahead(0, 0)
    return told


def by_the_copy_for_connect(sample: Sample) -> list[Told]:
    copy, told = PartitionCopy(0, CopyProgress("", 0, 0)), []
    names = {connect_key(key): key for _, key in sample.removals}
    for offset, each in events(sample):
        told += [
            (copied.progress.seq, names[copied.key])
            for copied in copy.take(offset, each.key, each.record)
            if copied.value is not None and b'"$expiry"' in copied.value
        ]
    return told


def by_dataframes(sample: Sample) -> list[Told]:
    """In micro-batches, with the state packed between them."""
    rng, seen, told = random.Random(1), SeenRecords(), []
    names = ("partition", "offset", "key", "value")
    given = [(0, offset, each.key, each.value) for offset, each in enumerate(sample.written)]
    types = (pa.int32(), pa.int64(), pa.binary(), pa.binary())
    while given:
        count = rng.randint(1, 5)
        part, given = given[:count], given[count:]
        columns = [pa.array(c, t) for c, t in zip(zip(*part, strict=True), types, strict=True)]
        (made,) = rows.events([pa.record_batch(columns, names=list(names))])
        found = made.to_pylist()
        mask = seen.fresh((r["seq"], r["index"], r["key"], r["resolved"]) for r in found)
        told += [
            (row["seq"], row["key"])
            for row, fresh in zip(found, mask, strict=True)
            if fresh and is_removal(row["index"])
        ]
        seen = SeenRecords(seen.resolved, seen.pack())
    return told


def by_a_client(sample: Sample) -> list[Told]:
    """From streams that are cut within the changes of a seq."""
    rng = random.Random(2)
    merger = Merger(1, 0)
    batches = [batch for _, e in events(sample) if (batch := merger.take(0, e.key, e.record))]
    changes = [decode_event(event.data) for batch in batches for event in batch.changes]
    watching, told = Watching(Session(), Selection(), 0), []
    sent: list[Event] = []
    for change, following in zip(changes, [*changes[1:], None], strict=True):
        sent.append(change)
        if following is None or following.seq != change.seq:
            cut = rng.randint(0, len(sent))
            watching._take(sent[:cut])
            watching._take([*sent, Progress(change.seq)])
            sent = []
    while (given := watching._given()) is not None:
        told += [(given.seq, given.key)] if is_removal(given.number) else []
    return told


def by_check(sample: Sample) -> list[Told]:
    """Its comparison finds all changes, and knows the repetitions."""
    report = CheckReport("bank")
    comparison = Comparison(sample.expected, report, Workflows(report))
    told = []
    for offset, each in enumerate(sample.written):
        before = report.changes.matched
        comparison.change(Output(0, offset, each.key, each.value))
        if report.changes.matched > before and isinstance(each.record, Change):
            name = change_name(each.key, each.record)
            told += [(name.seq, name.key.decode())] if is_removal(name.number) else []
    assert not report.differences
    assert report.changes.matched == len(sample.expected.changes)
    return told


def by_the_simulator(sample: Sample) -> list[Told]:
    written = [WrittenRecord(o.CHANGES, each.key, each.value, 0) for each in sample.written]
    outcome = SeedOutcome(0)
    first = _first_writes(written, outcome)
    return [(seq, key.decode()) for topic, seq, number, key in first
            if topic == "changes" and is_removal(number)]  # fmt: skip


CONSUMERS: Final[Sequence[Callable[[Sample], list[Told]]]] = (
    by_the_feed,
    by_the_copy_for_connect,
    by_dataframes,
    by_a_client,
    by_check,
    by_the_simulator,
)


def test_the_keys_share_a_number() -> None:
    assert len({removal_number(key.encode()) for key in SHARING}) == 1
    sample = sampled(0)
    assert {seq for seq, key in sample.removals if key == SHARING[0]} == {
        seq for seq, key in sample.removals if key == SHARING[1]
    }


@pytest.mark.parametrize("consumer", CONSUMERS)
@pytest.mark.parametrize("seed", range(seeds(20, 8)))
def test_every_consumer_tells_every_removal_once(
    consumer: Callable[[Sample], list[Told]], seed: int
) -> None:
    sample = sampled(seed)
    assert Counter(consumer(sample)) == Counter(sample.removals)


@pytest.mark.parametrize("kind", ["http", "direct"])
def test_a_mirror_of_a_database_equals_it(kind: str) -> None:
    with MemoryHost() as host, host.connect(kind) as client:  # type: ignore[arg-type]
        updates = [{"op": "put", "key": key, "value": 1, "ttl_ms": 1} for key in SHARING]
        client.transaction(updates=updates)
        mirror: dict[str, ClientChange] = {}
        with client.watch(since=0) as watch:
            host.database.now_ms += 2
            client.put("end", 1)
            client.put("last", 1)
            while "last" not in mirror:
                change = next(watch)
                mirror[change.key] = change
                if change.op == "d":
                    del mirror[change.key]
        assert sorted(mirror) == sorted(entry.key for entry in client.scan(""))


WHERE: Final = {
    "streamydb/txn_processor/format.py": "writes it",
    "streamydb/records/schemas.py": "describes it",
    "streamydb/records/connect.py": "describes it",
    "streamydb/records/change.py": "describes it",
    "streamydb/read_model/recognise.py": "reads past it: a store keeps one row for (key, seq)",
    "streamydb/kafka/positions.py": "tells removals from writes; drops nothing",
    "streamydb/facade/explanation/kafka.py": "names changes with `change_name`; omits removals",
    "streamydb/facade/feed.py": "by_the_feed",
    "streamydb/spark/rows.py": "by_dataframes",
    "streamydb/client/watch_core.py": "by_a_client",
    "streamydb/verify/check/compare.py": "by_check",
    "streamydb/verify/check/expected.py": "by_check",
    "streamydb/verify/check/report.py": "describes it",
    "simulator/judge.py": "by_the_simulator",
    "clients/typescript/src/watch.ts": "clients/typescript/test/client.test.ts",
    "examples/sinks/to_parquet.py": "writes it beside the key",
}
"""The files that name `total_order`, and why each keeps changes with one number apart."""


def test_whoever_reads_the_number_of_a_change_is_known() -> None:
    folders = (
        "streamydb", "layers", "simulator", "examples", "clients/typescript/src", "jobs", "bench"
    )  # fmt: skip
    kinds = {".py", ".ts", ".mjs", ".sql"}
    found = {
        str(path.relative_to(ROOT))
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.suffix in kinds and "total_order" in path.read_text("utf-8")
    }
    assert found == set(WHERE), "add a consumer that tells changes apart by (seq, number, key)"
