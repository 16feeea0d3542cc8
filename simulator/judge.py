"""Compare everything that a simulated pipeline has done with the serial oracle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from simulator.cluster import Cluster, WrittenRecord
from simulator.digests import wrong_digests
from simulator.log import SimulatedLog
from simulator.procedures import MODULES
from simulator.workflows import Divergence, OutputIdentity, check_flows
from streamydb.frames import program as p
from streamydb.frames.blobs import BlobStore
from streamydb.key_processor.locking.state import SingleMeta
from streamydb.key_processor.state import ShardState, load
from streamydb.key_processor.values import ShardValues, ValuesState
from streamydb.records import Expiring, end_of
from streamydb.txn_processor import outputs as o
from streamydb.txn_processor.gathering.gathered import GatherState
from streamydb.verify.oracle.core import replay
from streamydb.verify.oracle.outputs import OutputRecord, Topic

__all__ = ["TOPICS", "Divergence", "SeedOutcome", "judge"]

TOPICS: Final[dict[int, Topic]] = {
    o.RESULTS: "results",
    o.CHANGES: "changes",
    o.DEAD_LETTERS: "deadletters",
    o.STREAMS: "streams",
    o.FOLLOW_UPS: "transactions",
}
"""The topics of the outputs, as the oracle names them."""


@dataclass(slots=True)
class SeedOutcome:
    """The outcome of a seed: how much it did, and what was wrong (empty when nothing was)."""

    seed: int
    grouping: str = ""
    transactions: int = 0
    batches: int = 0
    repeated: int = 0
    faults: int = 0
    events: Counter[str] = field(default_factory=Counter)
    config: str = ""
    problems: list[str] = field(default_factory=list)


def judge(
    cluster: Cluster, log: SimulatedLog, outcome: SeedOutcome, others: Sequence[Cluster] = ()
) -> None:
    """Compare all that a cluster at rest has written and holds with the oracle; fill ``outcome``.

    ``others``: clusters over the same log, with the same outputs, which must hold the same.

    Raises:
        Divergence: they differ.

    """
    config = cluster.config
    rulings = cluster.topic.rulings()
    outcome.faults = len(rulings)
    expected = replay(
        log.partitions,
        database="sim",
        initial_partitions=config.partitions,
        id_window=config.id_window,
        rulings=rulings,
        modules=MODULES,
    )
    outcome.transactions = expected.next_seq - 1
    written = [record for record in cluster.written if record.topic != o.DIGESTS]
    first = _first_writes(written, outcome)
    _same_outputs(first, expected.outputs)
    _ordered_changes(written)
    _never_early(written, expected.next_seq - 1)
    for each in (cluster, *others):
        _same_values(each, expected.state)
    check_flows(log, first, expected.state)
    digests = [(r.key, r.value) for r in cluster.written if r.topic == o.DIGESTS]
    wrong = wrong_digests(digests, expected.outputs, expected.next_seq - 1, config)
    if wrong:
        raise Divergence(wrong)


_NONE: Final[OutputIdentity] = ("", 0, 0, b"")


def _identity(topic: str, key: bytes | None, value: bytes | None) -> OutputIdentity:
    """The identity of an output that is not a tombstone."""
    found = msgspec.json.decode(value or b"{}")
    if topic == "transactions":
        _, seq, index = found["id"].split("/")
        return topic, int(seq), int(index), b""
    if topic == "streams":
        return topic, found["seq"], found["index"], b""
    if topic == "changes":
        number = found["transaction"]["total_order"]
        return topic, found["source"]["seq"], number, key or b""
    return topic, found.get("duplicate", found)["seq"], 0, b""


def _first_writes(
    written: list[WrittenRecord], outcome: SeedOutcome
) -> dict[OutputIdentity, OutputRecord]:
    """Every output once; what was written again must be the same to the byte."""
    first: dict[OutputIdentity, OutputRecord] = {}
    identity = _NONE
    for record in written:
        if record.value is not None and record.value.startswith(b'{"resolved"'):
            continue
        topic = TOPICS[record.topic]
        if record.after:
            identity = _identity(topic, record.key, record.after)
        if record.value is None:
            identity = ("tombstones", *identity[1:])
        else:
            identity = _identity(topic, record.key, record.value)
        output = OutputRecord(topic, record.key, record.value)
        if identity in first:
            outcome.repeated += 1
            if first[identity] != output:
                raise Divergence(f"written twice, differently: {first[identity]} and {output}")
        first.setdefault(identity, output)
    return first


def _same_outputs(first: dict[OutputIdentity, OutputRecord], expected: list[OutputRecord]) -> None:
    wanted = {}
    identity = _NONE
    for output in expected:
        if output.value is None:
            identity = ("tombstones", *identity[1:])
        else:
            identity = _identity(output.topic, output.key, output.value)
        wanted[identity] = output
    for name, output in wanted.items():
        if name not in first:
            raise Divergence(f"missing: {output}")
        if first[name] != output:
            raise Divergence(f"different: {first[name]}, expected {output}")
    for name, output in first.items():
        if name not in wanted:
            raise Divergence(f"extra: {output}")


def _ordered_changes(written: list[WrittenRecord]) -> None:
    """The changes of a key appear for the first time in order of seq."""
    newest: dict[bytes | None, int] = {}
    seen: set[tuple[bytes | None, int]] = set()
    for record in written:
        if record.topic != o.CHANGES or record.value is None or record.key is None:
            continue
        seq = msgspec.json.decode(record.value)["source"]["seq"]
        if (record.key, seq) in seen:
            continue
        seen.add((record.key, seq))
        if seq < newest.get(record.key, 0):
            raise Divergence(f"key {record.key!r}: seq {seq} after {newest[record.key]}")
        newest[record.key] = seq


def _never_early(written: list[WrittenRecord], last: int) -> None:
    """A resolved record comes after every output up to its seq; at last everything is resolved.

    Strong reads count on that (`facade/reads.py`). What the driver announces may be about the batch
    that has just ended, and is not counted on.
    """
    firsts: dict[int, int] = {}
    resolved: list[tuple[int, int]] = []
    announced: list[tuple[int, int]] = []
    seen = set()
    for record in written:
        value = record.value or b""
        if value.startswith(b'{"resolved"'):
            told = announced if record.announced else resolved
            told.append((record.batch, msgspec.json.decode(value)["resolved"]))
        elif value and (record.topic, record.key, value) not in seen:
            seen.add((record.topic, record.key, value))
            seq = _identity(TOPICS[record.topic], record.key, value)[1]
            firsts[seq] = max(firsts.get(seq, -1), record.batch)
    latest = [-1] * (last + 1)
    for seq in range(1, last + 1):
        latest[seq] = max(latest[seq - 1], firsts.get(seq, -1))
    for batch, seq in [*resolved, *((batch + 1, seq) for batch, seq in announced)]:
        if latest[seq] >= batch:
            raise Divergence(f"resolved {seq} was written before it was true (batch {batch})")
    if last and max((seq for _, seq in resolved), default=0) != last:
        raise Divergence(f"resolved up to {max(s for _, s in resolved or [(0, 0)])} of {last}")


def _at_rest(meta: SingleMeta, gathered: BlobStore) -> ValuesState:
    """Nothing is locked, unresolved or gathered any more; returns what the values are known by."""
    if meta.locks or meta.ranges or meta.unresolved or meta.repeats:
        locks = len(meta.locks) + len(meta.ranges)
        held = f"{locks} locks, {len(meta.unresolved)} transactions unresolved"
        raise Divergence(f"not at rest: {held}, {len(meta.repeats)} repetitions")
    index = gathered.get("gather")
    waiting = msgspec.msgpack.decode(index, type=GatherState).waiting if index else {}
    if waiting:
        raise Divergence(f"{len(waiting)} transactions are still being gathered")
    return meta.values


def _same_values(cluster: Cluster, expected: dict[str, tuple[bytes, int]]) -> None:
    """Require that the shards hold the oracle's state, in the blobs and in the local files."""
    found: dict[str, tuple[bytes, int]] = {}
    for node in cluster.nodes:
        data = node.blobs.get("meta")
        if data is None:
            continue
        if cluster.single:
            values = _at_rest(load(SingleMeta, data), node.gathered)
        else:
            meta = msgspec.msgpack.decode(data, type=ShardState)
            if meta.open is not None:
                raise Divergence("a plan is still open after everything came to rest")
            values = meta.values
        table = ShardValues(values, node.blobs, node.caches.values()).everything()
        for i in range(len(table)):
            text = table.text[i]
            number = b"%d" % table.number[i]
            tag = table.tag[i]
            value = number if tag == p.INT else text
            if tag == p.EXPIRING:
                value = Expiring(text, int(number))
            found[table.key[i].decode()] = value, int(table.version[i])
    ends = {key: end_of(value) for key, (value, _) in expected.items()}
    if found != expected or ends != {key: end_of(value) for key, (value, _) in found.items()}:
        keys = sorted({*found, *expected})
        wrong = [k for k in keys if found.get(k) != expected.get(k)]
        shown = [(k, found.get(k), expected.get(k)) for k in wrong[:3]]
        raise Divergence(f"values differ (key, found, expected): {shown}")
