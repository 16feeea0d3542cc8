"""The table of isolation levels in docs/semantics.md: each path keeps its level, and no more.

A path that is said to be weaker than PL-4 shows the anomaly here that makes it so.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from simulator.cluster import Cluster
from simulator.log import SimulatedLog
from simulator.procedures import MODULES
from streamydb.client.blocking.client import Client
from streamydb.client.session import Options
from streamydb.frames.shards import ShardConfig
from streamydb.procedures.modules import compile_module
from streamydb.testing.clients import Kind, MemoryHost
from streamydb.testing.database import wait_for
from streamydb.txn_processor import outputs as o
from tests.support.isolation import Recording

PAGE = (Path(__file__).parents[3] / "docs" / "semantics.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| ([^|]+?) \| (PL-\d) \|", re.MULTILINE)
TABLE: Final = dict(ROW.findall(PAGE))
KEYS: Final = ("x", "y")
PATHS: dict[str, Callable[[], Recording]] = {}
Path_ = Callable[[], Recording]


def path(name: str) -> Callable[[Path_], Path_]:
    def note(run: Path_) -> Path_:
        PATHS[name] = run
        return run

    return note


# Transactions, through the classes that Spark runs.

_TEXT: Final = b"""
def push(db, keys, item):
    for key in keys:
        db.append(key, item)
    return [db.get(key) for key in keys]
"""


def executed(grouping: str, *, calls: bool = False, seed: int = 7) -> Recording:
    """Clients append transactions while micro-batches run, with three shards and crashes."""
    rng = random.Random(seed)
    config = ShardConfig("sim", f"levels-{seed}", 3, 2, 10_000, grouping)
    log = SimulatedLog(rng, config.partitions)
    cluster = Cluster(config, log, rng, crashes=0.05)
    recording = Recording()
    if calls:
        deploy = {"module": "lists", "hash": MODULES.put(_TEXT),
                  "procedures": compile_module("lists", _TEXT).procedures}  # fmt: skip
        log.append(json.dumps({"id": "deploy", "deploy": deploy}).encode())
    told = 0
    for number in range(120):
        keys = rng.sample(["x", "y", "z"], rng.randint(1, 2))
        item, txn = f"t{number}", dict[str, Any](id=f"t{number}", reads=["x", "y"])
        if calls:
            args = {"keys": keys, "item": item}
            txn["call"] = {"procedure": "lists.push", "args": args, "keys": keys}
        else:
            txn["updates"] = [{"op": "append", "key": key, "value": item} for key in keys]
        recording.begin(item, {key: [item] for key in keys}, ["x", "y"])
        log.append(json.dumps(txn).encode())
        if number % 7 == 6:
            log.round()
            cluster.batch()
            told = _tell(cluster, recording, told)
    log.round()
    log.round()
    while cluster.behind():
        cluster.batch(all_of_it=True)
    _tell(cluster, recording, told)
    assert len(recording.lines) == 120
    return recording


def _tell(cluster: Cluster, recording: Recording, told: int) -> int:
    for record in cluster.written[told:]:
        if record.topic == o.RESULTS:
            recording.result(record.value or b"")
    return len(cluster.written)


path("transactions")(lambda: executed("planner"))
path("transactions, `grouping=single`")(lambda: executed("single"))
path("stored procedures")(lambda: executed("planner", calls=True))


# Reads, through facade and client over a read model that is behind at times.


@contextmanager
def behind(kind: Kind = "http") -> Iterator[tuple[MemoryHost, Client, Recording]]:
    """Two transactions have been answered; the read model knows only of the first."""
    with MemoryHost() as host, host.connect(kind) as client:
        recording = Recording()
        push(client, recording, "a")
        host.database.resolving = False
        push(client, recording, "b")
        yield host, client, recording


def push(client: Client, recording: Recording, item: str) -> None:
    """Append an item to both lists in one transaction."""
    recording.begin(item, {key: [item] for key in KEYS}, list(KEYS))
    updates = [{"op": "append", "key": key, "value": item} for key in KEYS]
    done = client.transaction(txn_id=item, updates=updates, reads=KEYS)
    told = {"id": item, "seq": done.seq, "status": "committed", "reads": done.reads}
    recording.result(json.dumps(told).encode())


def read(recording: Recording, do: Callable[[], Any]) -> dict[str, Any]:
    """Read both lists in one operation."""
    began = recording.now()
    shown = dict(do())
    recording.read(began, {key: shown.get(key) for key in KEYS})
    return shown


def strong(kind: Kind, do: Callable[[Client], Any]) -> Recording:
    """A read that begins while the read model is behind, and may wait for it."""
    with behind(kind) as (host, client, recording), ThreadPoolExecutor(1) as pool:
        asks = host.database.log.asks
        reading = pool.submit(read, recording, lambda: do(client))
        wait_for(lambda: host.database.log.asks > asks or reading.done(), "a look at the log")
        host.resume()
        assert reading.result() == {"x": ["a", "b"], "y": ["a", "b"]}
        return recording


def scanned(client: Client, **more: Any) -> dict[str, Any]:
    return {entry.key: entry.value for entry in client.scan(**more)}


def stale(do: Callable[[MemoryHost, Client], Any]) -> Recording:
    """A read that does not wait: it shows one state, from before what others were told."""
    with behind() as (host, client, recording):
        assert read(recording, lambda: do(host, client)) == {"x": ["a"], "y": ["a"]}
        return recording


path("strong reads: `GET`, `POST /v1/read`")(
    lambda: strong("http", lambda client: client.read(KEYS))
)
path("strong lists, all pages")(lambda: strong("http", scanned))
path("client over `kafka://`, strong")(lambda: strong("direct", lambda client: client.read(KEYS)))
path("snapshot reads")(lambda: stale(lambda _, client: client.read(KEYS, consistency="snapshot")))
path("`at=`, past snapshots")(lambda: stale(lambda _, client: client.read(KEYS, at=1)))
path("read model in a program")(lambda: stale(lambda host, _: _local(host)))


def _local(host: MemoryHost) -> dict[str, Any]:
    with host.database.model.snapshot() as snapshot:
        return {entry.key: json.loads(entry.value) for entry in snapshot.scan()}


@path("session reads")
def session() -> Recording:
    """A session sees all that it has seen; another one may not see it yet."""
    with behind() as (host, client, recording), host.connect() as other:
        stranger = read(recording, lambda: other.read(KEYS, consistency="session"))
        assert stranger == {"x": ["a"], "y": ["a"]}
        with ThreadPoolExecutor(1) as pool:
            own = pool.submit(client.read, KEYS, consistency="session")
            host.resume()
            assert dict(own.result()) == {"x": ["a", "b"], "y": ["a", "b"]}
        return recording


@path("later pages of a list, by cursor")
def later_pages() -> Recording:
    """A page shows the snapshot of the first, whatever was told meanwhile."""
    with MemoryHost() as host, host.connect(options=Options(page_entries=1)) as client:
        recording = Recording()
        push(client, recording, "a")
        pages = client.scan()
        first = next(pages)
        push(client, recording, "b")
        began = recording.now()
        recording.read(began, {first.key: first.value, **{e.key: e.value for e in pages}})
        return recording


@path("`run()` of the client")
def functions() -> Recording:
    """A function reads and writes while others write: its reads hold where it commits."""
    with MemoryHost() as host, host.connect() as client, host.connect() as other:
        recording = Recording()
        push(client, recording, "a")
        calls: list[Any] = []

        def swap(view: Any) -> None:
            seen = view.get("x")
            if not calls:
                push(other, recording, "b")
            calls.append(seen)
            recording.begin("c", {"x": ["c"]}, ["x"])
            view.put("x", [*seen, "c"])

        client.run(swap)
        told = {"id": "c", "seq": client.session.seq, "status": "committed"}
        recording.result(json.dumps(told | {"reads": {"x": [*calls[-1], "c"]}}).encode())
        read(recording, lambda: client.read(KEYS))
        assert calls == [["a"], ["a", "b"]]
        return recording


@path("watch, event stream")
def watched() -> Recording:
    """A follower has whole transactions, in order, and is behind."""
    with behind() as (host, client, recording):
        state: dict[str, Any] = {}
        with client.watch(since=0) as changes:
            for change in changes:
                state[change.key] = change.value
                if len(state) == len(KEYS):
                    break
        assert state == {"x": ["a"], "y": ["a"]}
        read(recording, lambda: state)
        assert host.database.model.latest().seq == 1
        return recording


def consumed(*, resolved: bool) -> Recording:
    """A consumer of the changes has polled the partition of x later than that of y."""
    with behind() as (host, _, recording):
        database = host.database
        host.resume()
        first, second = database.changes.all
        seen = [*first.changes] if resolved else [*first.changes, *second.changes]
        late = {event.key: json.loads(event.data)["after"] for event in seen}
        early = {event.key: json.loads(event.data)["after"] for event in first.changes}
        read(recording, lambda: {"x": late["x"], "y": early["y"]})
        return recording


path("changes topic, a plain consumer")(lambda: consumed(resolved=False))
path("changes topic, up to a `resolved`")(lambda: consumed(resolved=True))


@pytest.mark.parametrize("name", PATHS)
def test_each_path_keeps_the_level_of_the_table_and_no_more(name: str) -> None:
    assert PATHS[name]().level() == TABLE[name]


def test_the_table_has_these_paths() -> None:
    assert set(TABLE) == set(PATHS)
