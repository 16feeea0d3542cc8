"""What a client does with a real database, the same through every transport and driver."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import pytest

import streamydb
from streamydb.client import (
    BoundViolatedError,
    CheckFailedError,
    IdReusedError,
    TransactionUnknownError,
    View,
)
from streamydb.client.portal import Portal
from streamydb.testing.clients import Awaited

ROUNDS: Final = 2


@contextmanager
def connected(*urls: str) -> Iterator[dict[str, Any]]:
    """Clients of one database by name: for threads and for coroutines, through each URL."""
    with ExitStack() as stack:
        portal = Portal()
        stack.callback(portal.close)
        clients: dict[str, Any] = {}
        for url in urls:
            kind = url.partition(":")[0]
            clients[f"{kind}-blocking"] = stack.enter_context(streamydb.connect(url))
            awaiting = stack.enter_context(Awaited(portal, streamydb.connect_async(url)))
            clients[f"{kind}-awaiting"] = awaiting
        yield clients


def use(clients: dict[str, Any]) -> None:
    """Everything that a client can do, through each of them, and what they do together."""
    in_threads(lambda name: alone(clients[name], f"{name}/"), list(clients))
    watch_each_other(list(clients.values()))
    contend(list(clients.values()))


def alone(client: Any, prefix: str) -> None:
    """What one client does with keys of its own."""
    read_and_write(client, prefix)
    decide(client, prefix)
    look_back(client, prefix)


def read_and_write(client: Any, prefix: str) -> None:
    """Values, several at once, ranges, deletions."""
    keys = [f"{prefix}{name}" for name in ("a", "b", "é/\n", "%2F")]
    for number, key in enumerate(keys):
        made = client.put(key, {"n": number})
        assert (client.entry(key).version, client.get(key)) == (made.seq, {"n": number})
    snapshot = client.read([*keys, f"{prefix}none"])
    assert [value and value["n"] for value in snapshot.values()] == [0, 1, 2, 3, None]
    assert snapshot.seq >= made.seq
    entries = list(client.scan(prefix))
    assert [entry.key for entry in entries] == sorted(keys, key=str.encode)
    assert [e.key for e in client.scan(prefix, start=keys[1], limit=1)] == [keys[1]]
    client.delete(keys[0])
    assert client.get(keys[0], "gone") == "gone"
    assert not client.entry(keys[0]).exists


def decide(client: Any, prefix: str) -> None:
    """Transactions: verdicts, failed checks, ids."""
    stock, orders = f"{prefix}stock", f"{prefix}orders"
    client.put(stock, 2)
    seen = client.entry(stock)
    sale = client.atomic(f"{prefix}sale").check(seen).add(stock, -1, min=0).next_id(orders)
    made = sale.read(stock).commit()
    assert (made.reads, made.repeated) == ({stock: 1, orders: 1}, False)
    again = sale.commit()
    assert (again.seq, again.reads, again.repeated) == (made.seq, made.reads, True)
    assert client.verdict(f"{prefix}sale").seq == made.seq
    with pytest.raises(IdReusedError):
        client.atomic(f"{prefix}sale").delete(stock).commit()
    with pytest.raises(CheckFailedError) as stale:
        client.atomic().check(seen).delete(stock).commit()
    assert (stale.value.failed[0].key, stale.value.failed[0].version) == (stock, made.seq)
    with pytest.raises(BoundViolatedError):
        client.transaction(updates=[{"op": "add", "key": stock, "by": -5, "min": 0}])
    with pytest.raises(TransactionUnknownError):
        client.verdict(f"{prefix}never", timeout_s=0)
    assert client.get(stock) == 1
    assert client.run(lambda view: view.get(stock)) == 1
    client.run(lambda view: view.put(stock, len(list(view.scan(prefix)))))
    assert client.get(stock) == client.run(lambda view: len(list(view.scan(prefix))))


def look_back(client: Any, prefix: str) -> None:
    """The past, and how fresh a read is."""
    key = f"{prefix}past"
    seqs = [client.put(key, number).seq for number in range(3)]
    assert [client.get(key, at=seq) for seq in seqs] == [0, 1, 2]
    assert [client.get(key, consistency=each) for each in ("strong", "session")] == [2, 2]
    assert client.read([key], consistency="snapshot").seq >= seqs[-1]
    assert client.session.seq >= seqs[-1]
    assert client.get(key, at=seqs[0] - 1) is None


def watch_each_other(clients: list[Any]) -> None:
    """Each sees what all of them write, in one order; from a seq on, too."""
    with ExitStack() as stack:
        watches = [stack.enter_context(client.watch("watched/")) for client in clients]
        begun = clients[0].put("before", 0).seq
        for number, client in enumerate(clients):
            client.atomic().put(f"watched/{number}", number).put("unwatched", number).commit()
        seen = [[next(watch) for _ in clients] for watch in watches]
    keys = [f"watched/{number}" for number in range(len(clients))]
    assert [[change.key for change in changes] for changes in seen] == [keys] * len(clients)
    assert all(changes == seen[0] for changes in seen)
    for client in clients:
        with client.watch("watched/", since=begun) as later:
            assert [next(later) for _ in clients] == seen[0]


def contend(clients: list[Any]) -> None:
    """Functions that all want the same counter, in threads: no update is lost."""
    taken: list[int] = []
    ready = threading.Barrier(len(clients))

    def increment(view: View) -> int:
        value: int = view.get("contended", 0) + 1
        view.put("contended", value)
        return value

    def work(client: Any) -> None:
        ready.wait(60)
        taken.extend([client.run(increment) for _ in range(ROUNDS)])

    in_threads(work, clients)
    assert sorted(taken) == list(range(1, ROUNDS * len(clients) + 1))
    assert [client.get("contended") for client in clients] == [len(taken)] * len(clients)


def in_threads(function: Callable[[Any], None], arguments: list[Any]) -> None:
    """Call a function with each argument at once; an exception in one of them is raised."""
    with ThreadPoolExecutor(len(arguments)) as pool:
        list(pool.map(function, arguments))
