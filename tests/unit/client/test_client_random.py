"""Clients under random cuts and lost answers: changes and streams come whole, once, in order."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from streamydb.client import Options
from streamydb.facade import FacadeSettings
from streamydb.procedures.modules import compile_module
from streamydb.records.emission import Emitted
from streamydb.testing.clients import Awaited, Kind, MemoryHost
from streamydb.testing.faults import Faults
from tests.support.workflows import HEAD

WAYS: list[tuple[Kind, bool]] = [
    ("http", True), ("http", False), ("direct", True), ("direct", False),
]  # fmt: skip


def client_of(host: MemoryHost, kind: Kind, *, blocking: bool, **options: Any) -> Any:
    made = Options(backoff_s=0.001, backoff_max_s=0.002, modules=host.database.modules, **options)
    if blocking:
        return host.connect(kind, options=made)
    return Awaited(host.portal, host.connect_async(kind, options=made))


def append(host: MemoryHost, **fields: Any) -> None:
    """Append a record behind the clients' backs; stages that are not stopped execute it."""
    log = host.database.log
    log.records.append(json.dumps({"id": f"own-{len(log.records)}", **fields}).encode())
    host.do(host.database.run)


def put(host: MemoryHost, values: Mapping[str, Any]) -> None:
    updates = [
        {"op": "delete", "key": key} if value is None else {"op": "put", "key": key, "value": value}
        for key, value in values.items()
    ]
    append(host, updates=updates)


def disturb(rng: random.Random, faults: Faults) -> None:
    """Have the next requests and streams fail."""
    faults.cut += [rng.randrange(6) for _ in range(rng.randrange(3))]
    faults.refused += rng.choice([0, 0, 2])
    faults.lost += rng.choice([0, 0, 1])


class Written:
    """Random transactions, and the changes that they are: (seq, number, key, op, before, after)."""

    def __init__(self, rng: random.Random, host: MemoryHost, prefix: str) -> None:
        self.changes: list[tuple[Any, ...]] = []
        self.seq = 0
        self._rng, self._host, self._prefix = rng, host, prefix
        self._state: dict[str, Any] = {}

    def write(self) -> None:
        """One transaction; the read model, and with it the feed, may come later."""
        rng = self._rng
        self._host.database.resolving = rng.random() < 0.7
        values = {
            key: rng.choice([None, rng.randrange(9), "é"])
            for key in rng.sample(["a", "a/1", "a/2", "b", "é\n"], rng.randrange(1, 5))
        }
        put(self._host, values)
        self.seq += 1
        number = 0
        for key, after in values.items():
            before = self._state.get(key)
            if before is after is None:
                continue
            number += 1
            op = "d" if after is None else "c" if before is None else "u"
            if key.startswith(self._prefix):
                self.changes.append((self.seq, number, key, op, before, after))
            self._state[key] = after


@pytest.mark.parametrize(("kind", "blocking"), WAYS)
@pytest.mark.parametrize("seed", range(4))
def test_every_change_comes_once_in_order_whatever_breaks(
    kind: Kind, seed: int, *, blocking: bool
) -> None:
    rng = random.Random(f"watch {seed}")
    prefix = rng.choice(["", "", "a/", "é"])
    with MemoryHost(FacadeSettings(heartbeat_s=0.02)) as host:
        written = Written(rng, host, prefix)
        client = client_of(host, kind, blocking=blocking)
        watch, found = client.watch(prefix, since=0), list[tuple[Any, ...]]()
        for _ in range(12):
            for _ in range(rng.randrange(4)):
                written.write()
            host.resume()
            disturb(rng, host.faults)
            for _ in range(rng.randint(0, len(written.changes) - len(found))):
                each = next(watch)
                found.append((each.seq, each.number, each.key, each.op, each.before, each.value))
            assert found == written.changes[: len(found)]
            assert (watch.seq or 0) <= min(
                (each[0] - 1 for each in written.changes[len(found) :]), default=written.seq
            )
            if rng.random() < 0.2:  # another one goes on where this one was
                watch.close()
                client = client_of(host, kind, blocking=blocking)
                found = [each for each in found if each[0] <= watch.seq]
                watch = client.watch(prefix, since=watch.seq)
        while len(found) < len(written.changes):
            each = next(watch)
            found.append((each.seq, each.number, each.key, each.op, each.before, each.value))
        watch.close()
        assert found == written.changes


SAY = (
    HEAD
    + """
flow = Workflow(emits={"say": ["a", "b"]})

@procedure(keys=lambda args: ["n"])
def say(db, names):
    for name in names:
        db.emit(name, db.get("n", 0))
    db.add("n", 1)
"""
)


def saying(host: MemoryHost) -> None:
    host.database.modules.put(SAY.encode())
    append(host, deploy=compile_module("talk", SAY.encode()).record)


class Said:
    """Random emissions: per stream, (seq, index, record)."""

    def __init__(self, rng: random.Random, host: MemoryHost) -> None:
        self.records: dict[str, list[tuple[int, int, int]]] = {"a": [], "b": []}
        self._rng, self._host, self._seq, self._number = rng, host, 1, 0

    def say(self) -> None:
        """One call; sometimes what was written last is there once more, as after a crash."""
        names = self._rng.choices("ab", k=self._rng.randrange(4))
        call = {"procedure": "talk.say", "args": {"names": names}, "keys": ["n", "$flows/talk"]}
        append(self._host, call=call)
        self._seq += 1
        for index, name in enumerate(names, 1):
            self.records[name].append((self._seq, index, self._number))
        self._number += 1
        if self._rng.random() < 0.3:
            feed = self._host.database.changes.streams
            for row in feed.all[-self._rng.randrange(1, 4) :]:
                self._host.do(partial(feed.put, row.key, row.value))


def seen(record: Emitted) -> tuple[int, int, int]:
    return record.seq, record.index, record.record


@pytest.mark.parametrize(("kind", "blocking"), WAYS)
@pytest.mark.parametrize("seed", range(3))
def test_a_stream_is_whole_wherever_it_is_begun_and_cut(
    kind: Kind, seed: int, *, blocking: bool
) -> None:
    rng = random.Random(f"streams {seed}")
    limits = FacadeSettings(
        page_entries_max=rng.choice([1, 3, 100]), heartbeat_s=0.02,
        stream_bytes_max=rng.choice([1, 2_000, 10**7]),
    )  # fmt: skip
    with MemoryHost(limits) as host:
        saying(host)
        said = Said(rng, host)
        client = client_of(host, kind, blocking=blocking)
        following, found = client.stream("talk.a"), list[tuple[int, int, int]]()
        for _ in range(8):
            for _ in range(rng.randrange(5)):
                said.say()
            disturb(rng, host.faults)
            for _ in range(rng.randint(0, len(said.records["a"]) - len(found))):
                found.append(seen(next(following)))
            assert found == said.records["a"][: len(found)]
            assert client.session.seq >= max([0, *(each[0] for each in found)])
        name = rng.choice("ab")
        everything = said.records[name]
        places = [each[:2] for each in everything] or [(1, 1)]
        for after in [None, (0, 0), rng.choice(places), rng.choice(places)[0], 10**9]:
            host.faults.lost += rng.randrange(2)
            begin = after if isinstance(after, tuple) else (after or 0, 2**63)
            rest = [each for each in everything if after is None or each[:2] > begin]
            stream = client.stream(f"talk.{name}", after=after, end=True)
            assert [seen(each) for each in stream] == rest
