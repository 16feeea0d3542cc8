"""A database of any size over Kafka in memory, with the worst shapes that a log may have.

Its log has, n / 4 times each: adds to hot keys, a key with many versions, ids that are used again,
keys that end, checks and locks of ranges over all keys, values that must be unique,
keys that are counted, calls whose outputs set follow-ups off, records that are no transactions.
Once each, a transaction names n keys. The oracle has made the outputs that a pipeline writes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from streamydb.cli.target import Target
from streamydb.kafka import connection
from streamydb.kafka.foundation import FoundingFacts
from streamydb.kafka.names import TopicNames
from streamydb.local.module_folder import file_name
from streamydb.procedures.modules import MemoryModules, compile_module, hash_of
from streamydb.records import Result, decode_result
from streamydb.records.attempts import relocked
from streamydb.records.begins import EVERYWHERE
from streamydb.records.rulings import Adopted, encode_ruling
from streamydb.verify.oracle.core import Oracle
from tests.support.memory_kafka import MemoryKafka
from tests.support.workflows import VOTER

__all__ = ["DATABASE", "Grown", "PromptDice", "encoded", "records"]

DATABASE: Final = "sim"
NAMES: Final = TopicNames(DATABASE)
START_MS: Final = 1_800_000_000_000
LARGE: Final = "x" * 300
"""What makes a record some hundreds of bytes large, so that held records show."""


class PromptDice(random.Random):
    """Nobody dies, nothing is late, and as much comes at once as may."""

    def random(self) -> float:
        """Return the least."""
        return 0.0

    def randint(self, _least: int, most: int) -> int:
        """Return some times the most, so that few batches come."""
        return 4 * most


def encoded(parts: Any) -> bytes:
    """Return a record."""
    return msgspec.json.encode(parts)


def _put(key: str, value: Any, **more: Any) -> dict[str, Any]:
    return {"op": "put", "key": key, "value": value, **more}


def records(size: int) -> Iterator[dict[str, Any]]:
    """Yield the transactions of a log: ten for each fourth of ``size``, and some of n keys."""
    module = compile_module("voter", VOTER.encode())
    procedures = {name: list(args) for name, args in module.procedures.items()}
    yield {"id": "deploy", "deploy": {**module.record, "procedures": procedures}}
    for rule in (
        {"name": "unique", "prefix": "u/", "unique": "$.mail"},
        {"name": "counted", "prefix": "g/", "keys": {"max": 10_000}},
        {"name": "few", "prefix": "f/", "keys": {"max": 9, "each": "/"}},
        {"name": "typed", "prefix": "k/", "type": "number"},
    ):
        yield {"id": f"declare {rule['name']}", "constrain": {"declare": rule}}
    whole = {"prefix": "k/"}
    for n in range(size // 4):
        yield {"id": f"put{n}", "updates": [_put(f"k/{n:05}", n), _put("v", LARGE)]}
        yield {"id": f"hot{n}", "updates": [{"op": "add", "key": f"h/{n % 2}", "by": 1}],
               "reads": [f"k/{n:05}"]}  # fmt: skip
        yield {"id": "again", "updates": [_put("once", LARGE)]}
        yield {"id": f"twice{n // 2}", "updates": [_put("w", n)], "deadline_ms": START_MS + 600_000}
        yield {"id": f"ends{n}", "updates": [_put(f"e/{n:05}", LARGE, ttl_ms=size + 7)]}
        yield {"id": f"range{n}", "checks": [{"range": whole, "count_ge": 1}]}
        yield {"id": f"lock{n}", "locks": [{"range": whole}, {"range": {"prefix": "$"}}],
               "updates": [_put("x", n)]}  # fmt: skip
        yield {"id": f"unique{n}", "updates": [_put(f"u/{n:05}", {"mail": f"m{n - n % 3}"})]}
        yield {"id": f"vote{n}", "call": {
            "procedure": "voter.vote", "args": {"phone": n, "who": f"w{n % 3}"},
            "keys": [f"phone/{n}", "$flows/voter"],
        }}  # fmt: skip
        yield {"id": f"odd{n}", "checks": 5, "more": LARGE}
    numbers = range(size)
    yield {"id": "many", "updates": [_put(f"m/{n:05}", LARGE) for n in numbers]}
    yield {"id": "read", "reads": [f"m/{n:05}" for n in numbers] + [{"range": {"prefix": "m/"}}]}
    yield {"id": "failed", "checks": [{"key": f"m/{n:05}", "version": 0} for n in numbers]}
    yield {"id": "emails", "updates": [_put(f"u/{n:05}x", {"mail": f"x{n}"}) for n in numbers]}
    yield {"id": "groups", "updates": [_put(f"g/{n:05}", n) for n in numbers]}
    yield {"id": "wide", "updates": [_put(f"k/{n:05}", -n) for n in numbers],
           "locks": [{"range": {"prefix": f"k/{n:05}"}} for n in numbers]}  # fmt: skip
    yield {"id": "gone", "updates": [{"op": "delete", "key": f"m/{n:05}"} for n in numbers]}


class Grown:
    """The database.

    Args:
        size: how many there are of everything.
        home: the folder of its home, which is empty.

    Attributes:
        kafka: has its topics.
        transactions: how many were executed.
        oracle: has executed them.
    """

    def __init__(self, size: int, home: Path) -> None:
        """Make it, with its outputs; nothing of it changes afterwards."""
        self.size, self.home = size, home
        self.kafka = MemoryKafka(PromptDice())
        self.now_ms = START_MS
        modules = MemoryModules()
        modules.put(VOTER.encode())
        self.oracle = Oracle(DATABASE, modules=modules)
        self.transactions = 0
        self._waiting: list[tuple[bytes, bytes | None]] = []
        self._create()
        for record in records(size):
            self._append(record["id"], encoded(record))
            while self._waiting:
                self._execute(*self._waiting.pop(0))
        self._resolve()
        (home / "procedures").mkdir(parents=True)
        file = home / "procedures" / file_name("voter", hash_of(VOTER.encode()))
        file.write_text(VOTER)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Be the Kafka that commands talk to."""
        self.kafka.install(monkeypatch)
        monkeypatch.setattr(connection, "listens", lambda _: True)
        monkeypatch.setattr(connection, "answer_of", lambda _: "kafka")
        monkeypatch.setattr(Target, "must_listen", lambda _: None)

    @property
    def options(self) -> list[str]:
        """The options that name it."""
        return ["--database", DATABASE, "--home", str(self.home), "--bootstrap", "memory:9092"]

    def _create(self) -> None:
        more = (NAMES.founding, NAMES.rulings, f"{DATABASE}.streams")
        for name in (*NAMES.all(), *NAMES.shared(), *more):
            self.kafka.create(name)
            self.kafka.ids[name] = f"id of {name}"
        log = self.kafka.ids[NAMES.transactions]
        facts = FoundingFacts(log=log, begins=EVERYWHERE, partitions=1)
        self.kafka.append(NAMES.founding, 0, encoded(facts), b"founding")
        self.kafka.append(NAMES.rulings, 0, encode_ruling(Adopted(log=log)))

    def _append(self, name: str, raw: bytes) -> None:
        """Append a transaction; again with the locks that it needs."""
        attempt: tuple[str, bytes] | None = name, raw
        while attempt is not None:
            attempt = relocked(*attempt, self._execute(attempt[1]))

    def _execute(self, raw: bytes, named: bytes | None = None) -> Result:
        self.now_ms += 1
        self.kafka.now_ms = self.now_ms
        offset = self.kafka.append(NAMES.transactions, 0, raw, named)
        outputs = self.oracle.apply(raw, 0, offset, self.now_ms)
        self.transactions += 1
        for topic, key, value in outputs:
            if topic == "transactions":
                self._waiting.append((value or b"", key))
            else:
                self.kafka.append(f"{DATABASE}.{topic}", 0, value, key)
        return decode_result(outputs[0].value or b"")

    def _resolve(self) -> None:
        ends = {"0": self.transactions}
        told = {"resolved": self.transactions, "ts_ms": self.now_ms, "offsets": ends}
        self.kafka.append(NAMES.changes, 0, encoded(told))
