"""A database whose topics lie in memory, for tests of what they tell of a transaction."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import msgspec
import pytest

from streamydb.columns.digest import StateDigest
from streamydb.columns.encoding import pack
from streamydb.facade.life import TransactionHistory, explain
from streamydb.facade.life.core import MetValue
from streamydb.facade.life.kafka import collect
from streamydb.kafka.names import TopicNames
from streamydb.procedures.modules import NO_MODULES, Modules
from streamydb.records import Result, decode_result
from streamydb.records.change import Resolved, encode_resolved
from streamydb.verify.oracle.core import Oracle
from streamydb.verify.oracle.outputs import OutputRecord
from tests.support.memory_kafka import CONNECTION, MemoryKafka

__all__ = ["NAMES", "Bank"]

NAMES = TopicNames("bank")
START_MS = 2_000_000_000


class Bank:
    """A database whose topics lie in memory; the oracle is its pipeline, with plans of any size."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, partitions: int = 1, modules: Modules = NO_MODULES
    ) -> None:
        self.kafka = MemoryKafka(random.Random(1))
        self.kafka.install(monkeypatch)
        self.kafka.create(NAMES.transactions, partitions)
        for topic in (NAMES.results, NAMES.changes, NAMES.feedback, NAMES.digests):
            self.kafka.create(topic, 2 if topic == NAMES.changes else 1)
        self.oracle = Oracle("bank", modules=modules)
        self.results: list[Result] = []
        self.outputs: list[list[OutputRecord]] = []
        self.states: list[dict[str, tuple[bytes, int]]] = []
        self.plans = 0
        self.kafka.now_ms = START_MS

    def append(self, raw: bytes, partition: int = 0) -> tuple[bytes, int, int, int]:
        """Append a record; it is executed with a plan."""
        self.kafka.now_ms += 10
        offset = self.kafka.append(NAMES.transactions, partition, raw)
        return raw, partition, offset, self.kafka.now_ms

    def plan(self, *records: tuple[bytes, int, int, int], twice: bool = False) -> None:
        """Execute records as one plan; ``twice``: its batch was repeated after a crash."""
        first = self.oracle.next_seq
        outputs = []
        for record in records:
            self.states.append(dict(self.oracle.state))
            self.outputs.append(self.oracle.apply(*record))
            outputs += self.outputs[-1]
        last = self.oracle.next_seq - 1
        self.plans += 1
        self.kafka.now_ms += 100
        for _ in range(2 if twice else 1):
            for topic, key, value in outputs:
                if topic not in ("results", "changes"):
                    continue
                name = NAMES.results if topic == "results" else NAMES.changes
                number = len(key or b"") % 2 if topic == "changes" else 0
                self.kafka.append(name, number, value, key)
        self.results += [decode_result(each.value or b"") for each in outputs
                         if each.topic == "results"]  # fmt: skip
        named = {"plan": self.plans, "life": "x", "first": first, "last": last, "layout": "y"}
        self.kafka.append(NAMES.feedback, 0, pack({}, kind="feedback", **named))
        self.kafka.now_ms += 5
        told = encode_resolved(Resolved(last, records[-1][3], {"0": records[-1][2] + 1}))
        for number in range(2):
            self.kafka.append(NAMES.changes, number, told)
        digest = StateDigest(last, 0, 1, f"{last:032x}", "0" * 16, 1)
        self.kafka.append(NAMES.digests, 0, msgspec.json.encode(digest), b"0/one")

    def life(self, seq: int, *, kept: bool = True) -> TransactionHistory:
        """Explain the transaction at a seq; ``kept``: whether the state before it is known."""
        result = next(r for r in self.results if r.seq == seq and r.duplicate is msgspec.UNSET)

        def look(keys: Sequence[str]) -> Mapping[str, MetValue] | None:
            state = self.states[seq - 1]
            return {k: MetValue(*state[k]) for k in keys if k in state} if kept else None

        return explain(result, collect(CONNECTION, "bank", result), look)
