"""Programs that use one client on both sides of a fork: each answer is checked against the asker.

    python -m tests.support.forked <kind> <url>

Several children and their parent ask at one instant, after a barrier. A program prints what was
wrong, as JSON: a list, which is empty if nothing was. Children end as programs do, with all
finalizers; a process that hangs is killed by the test's own timeout.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any, Final

import streamydb
from streamydb.client import AsyncClient, Client
from streamydb_layers.documents import Collection
from streamydb_layers.leases import Leases
from tests.support.inherited import foreign, modules

__all__ = ["KINDS", "forked"]

CHILDREN: Final = 5
ROUNDS: Final = 12
Work = Callable[[int], None]
"""What one process does; it raises if an answer is wrong."""


def forked(work: Work, parent: Work | None = None, children: int = CHILDREN) -> list[str]:
    """Have children and their parent (number 0) work from one instant on; return what failed."""
    barrier = multiprocessing.get_context("fork").Barrier(children + 1)
    told, tell = os.pipe()
    pids = []
    for number in range(1, children + 1):
        pid = os.fork()
        if pid == 0:
            _run(number, work, barrier, tell)
            sys.exit(0)  # not os._exit: what the child has inherited must not stop it either
        pids.append(pid)
    _run(0, parent or work, barrier, tell)
    ends = [os.waitpid(pid, 0)[1] for pid in pids]
    os.close(tell)
    with os.fdopen(told) as failures:
        found = [part for part in failures.read().split("\0") if part]
    return found + [f"a child ended with {end}" for end in ends if end]


def _run(number: int, work: Work, barrier: Any, tell: int) -> None:
    barrier.wait(60)
    try:
        work(number)
    except BaseException:  # noqa: BLE001 - it is told
        os.write(tell, f"{number}: {traceback.format_exc()[-2_000:]}\0".encode())


def _equal(shown: object, wanted: object) -> None:
    if shown != wanted:
        raise AssertionError(f"{shown!r} and not {wanted!r}")


def _stocked(client: Client) -> None:
    """Give each process keys of its own, and read once, so that there is a connection."""
    for number in range(CHILDREN + 1):
        client.put(f"own/{number}", number)
        client.transaction(updates=[
            {"op": "put", "key": f"range/{number}/{each}", "value": number}
            for each in range(3 + number)
        ])  # fmt: skip
    _equal(client.get("own/0"), 0)


def _ask(client: Client, number: int) -> None:
    """Ask what only this process asks for."""
    for count in range(ROUNDS):
        _equal(client.get(f"own/{number}"), number)
        found = [entry.value for entry in client.scan(f"range/{number}/")]
        _equal(found, [number] * (3 + number))
        order = client.atomic().put(f"made/{number}", [number, count]).read(f"made/{number}")
        made = order.commit()
        _equal((made.id, made.reads), (order.id, {f"made/{number}": [number, count]}))
        _equal(client.verdict(order.id).seq, made.seq)
        asked = f"select {number} * 1000 + {count} as x"
        if not count:
            _equal(client.query(asked).rows, ((number * 1000,),))


def blocking(url: str) -> list[str]:
    """A client for threads, with a watch and a scan on their way."""
    with streamydb.connect(url) as client:
        _stocked(client)
        client.session.options = replace(client.session.options, page_entries=2)
        since = client.session.seq
        watch, scan = client.watch("own/", since=since), client.scan("range/")
        order, named = client.atomic(), client.atomic("named")
        client.put("own/9", 0)
        _equal(next(watch).value, 0)
        next(scan)

        def work(number: int) -> None:
            _ask(client, number)
            client.put(f"own/{number}", [number])
            shown = [next(watch).value for _ in range(CHILDREN + 1)]
            _equal(sorted(shown), [[each] for each in range(CHILDREN + 1)])
            _equal(len([*scan]), sum(3 + each for each in range(CHILDREN + 1)) - 1)
            made = order.put(f"order/{number}", number).read(f"order/{number}").commit()
            _equal((made.repeated, made.reads), (False, {f"order/{number}": number}))
            _equal(named.put("named", 1).id, "named")

        return forked(work)


def awaiting(url: str) -> list[str]:
    """A client for coroutines: each child has a loop of its own, the parent goes on with its."""
    client = streamydb.connect_async(url)
    with streamydb.connect(url) as other:
        _stocked(other)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(client.put("own/9", 0))

    def work(number: int, run: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        run(_ask_awaiting(client, number))

    def child(number: int) -> None:
        for again in (loop.run_until_complete, asyncio.run):
            try:
                again(_ask_awaiting(client, number))
            except streamydb.client.NotConnectedError as error:
                _equal((again is not asyncio.run, "before a fork" in str(error)), (True, True))

    told = forked(child, partial(work, run=loop.run_until_complete))
    loop.run_until_complete(client.close())
    loop.close()
    return told


async def _ask_awaiting(client: AsyncClient, number: int) -> None:
    for count in range(ROUNDS):
        _equal(await client.get(f"own/{number}"), number)
        found = [entry.value async for entry in client.scan(f"range/{number}/")]
        _equal(found, [number] * (3 + number))
        made = await client.put(f"made/{number}", count)
        _equal((await client.verdict(made.id)).seq, made.seq)


def dbapi(url: str) -> list[str]:
    """A connection by PEP 249, idle at the fork; and one with a transaction,
    which is the parent's.
    """
    from streamydb_layers.tables import dbapi as api

    connection, opened = api.connect(url, "bank"), api.connect(url, "shop")
    for each in (connection, opened):
        each.cursor().execute("create table t (id int primary key, x int)")
        each.commit()
    opened.cursor().execute("insert into t values (1, 1)")

    def work(number: int) -> None:
        cursor = connection.cursor()
        for count in range(3):
            cursor.execute("insert into t values (?, ?)", [number * 100 + count, number])
            connection.commit()
            cursor.execute("select count(*), min(x) from t where id // 100 = ?", [number])
            _equal(cursor.fetchall(), [(count + 1, number)])
            connection.rollback()
        if number:
            for refused in (opened.commit, lambda: opened.cursor().execute("select 1")):
                try:
                    refused()
                except api.OperationalError as error:
                    _equal("before a fork" in str(error), True)
                else:
                    raise AssertionError("the parent's transaction was committed by a child")
                opened._open = opened._open or _left
            opened.rollback()
        else:
            opened.commit()
        cursor = opened.cursor().execute("select count(*) from t where x = 9")
        _equal(cursor.fetchall(), [(0,)])
        opened.close()

    _left = opened._open
    told = forked(work)
    connection.close()
    return told


def alchemy(url: str) -> list[str]:
    """An engine of SQLAlchemy, whose pool has connections at the fork."""
    from sqlalchemy import create_engine, text

    engine = create_engine(url.replace("http://", "streamydb://") + "/pooled")
    with engine.begin() as connection:
        connection.execute(text("create table t (id int primary key, x int)"))

    def work(number: int) -> None:
        for count in range(3):
            with engine.begin() as connection:
                connection.execute(
                    text("insert into t values (:id, :x)"),
                    {"id": number * 100 + count, "x": number},
                )
            with engine.connect() as connection:
                counted = text("select count(*), min(x) from t where id // 100 = :number")
                row = connection.execute(counted, {"number": number}).one()
                _equal(tuple(row), (count + 1, number))

    return forked(work)


def layers(url: str) -> list[str]:
    """Documents and leases of one client."""
    with streamydb.connect(url) as client:
        people, leases = Collection(client, "people"), Leases(client, "jobs")
        people.insert({"n": 0})
        leases.acquire("before", "parent")

        def work(number: int) -> None:
            for count in range(ROUNDS):
                person = people.insert({"n": number, "count": count})
                found = people.get(person)
                _equal(found and found.data, {"n": number, "count": count})
                lease = leases.acquire(f"job-{number}", f"worker-{number}")
                _equal((lease.holder, leases.holder(f"job-{number}")), (f"worker-{number}",) * 2)
                _equal(leases.release(lease), True)

        return forked(work)


def remains(url: str) -> list[str]:
    """All that is reachable in a child, of whatever kind of client: none of it is the parent's."""
    from streamydb_layers.tables import Tables
    from streamydb_layers.tables import dbapi as api

    client, awaited = streamydb.connect(url), streamydb.connect_async(url)
    _stocked(client)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(awaited.get("own/1"))
    client.put("own/9", 0)
    watch, scan, records = client.watch(since=0), client.scan(), client.stream("a.b")
    order, connection = client.atomic(), api.connect(url, "bank")
    connection.cursor().execute("create table t (id int primary key)")
    memory = Tables.in_memory()
    memory.sql("create table t (id int primary key)")
    next(watch), next(scan)
    things = [
        client, awaited, watch, scan, records, order, connection, memory,
        Leases(client, "jobs"), Collection(client, "people"),
    ]  # fmt: skip
    _equal(len(foreign(*things)) > len(things), True)  # here, they have all that they need

    def work(number: int) -> None:
        found = foreign(*things, *modules()) if number else []
        _equal(found, [])

    return forked(work, children=1)


def locked(url: str) -> list[str]:
    """A fork while other threads hold all locks of a client, and one waits for an answer."""
    with streamydb.connect(url) as client:
        _stocked(client)
        owned: Any = client._transport
        connections = owned._owned.get()._client._transport._pool
        held = [client.session._lock.get(), owned._owned._lock]
        watch = client.watch(since=0)
        next(watch)
        until, taken = threading.Event(), threading.Event()

        def hold() -> None:
            with connections._optional_thread_lock, held[0], held[1]:
                taken.set()
                until.wait(60)

        waiting = threading.Thread(target=lambda: [next(watch) for _ in range(99)], daemon=True)
        holding = threading.Thread(target=hold)
        for each in (waiting, holding):
            each.start()
        taken.wait(60)

        def parent(number: int) -> None:
            until.set()
            holding.join()
            _ask(client, number)

        return forked(partial(_ask, client), parent)


def unnoticed(url: str) -> list[str]:
    """A fork by another library, of which Python learns nothing."""
    with streamydb.connect(url) as client:
        _stocked(client)
        watch = client.watch("own/", since=client.session.seq)
        client.put("own/9", 0)
        _equal(next(watch).value, 0)
        told, tell = os.pipe()
        pid = ctypes.CDLL(None).fork()
        try:
            for count in range(ROUNDS):
                number = 0 if pid else 1
                _equal(client.get(f"own/{number}"), number)
                made = client.put(f"made/{number}", count)
                _equal(client.verdict(made.id).seq, made.seq)
            client.put(f"own/{number}", 5)
            _equal([next(watch).value, next(watch).value], [5, 5])
        except BaseException:  # noqa: BLE001 - it is told
            os.write(tell, traceback.format_exc()[-2_000:].encode())
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        os.close(tell)
        with os.fdopen(told) as failures:
            found = failures.read()
        return [found] if found else []


def outlived(url: str) -> list[str]:
    """A child that has a watch of its parent's, and goes on when that has been killed."""
    client = streamydb.connect(url)
    client.put("own/9", 0)
    watch = client.watch(since=0)
    next(watch)
    if os.fork():
        os.kill(os.getpid(), signal.SIGKILL)
    sys.stdout.write("begun\n")
    sys.stdout.flush()
    sys.stdin.read()
    return []


def direct(url: str) -> list[str]:
    """A client of Kafka, whose handles, threads and loop do not survive a fork."""
    with streamydb.connect(url, consistency="snapshot") as client:
        made = client.put("own/0", 0)
        _equal(client.verdict(made.id).seq, made.seq)

        def work(number: int) -> None:
            for count in range(ROUNDS):
                key = f"made/{number}/{count}"
                order = client.atomic().put(key, [number, count]).read(key)
                done = order.commit()
                _equal((done.id, done.reads), (order.id, {key: [number, count]}))
                _equal(done.repeated, False)
                _equal(client.verdict(order.id).seq, done.seq)
                _equal(client.get(key), None)  # nobody writes the read model

        return forked(work, children=3)


KINDS: Final = {
    each.__name__: each
    for each in (
        blocking, awaiting, dbapi, alchemy, layers, remains, locked, unnoticed, outlived, direct,
    )
}  # fmt: skip

if __name__ == "__main__":
    sys.stdout.write(json.dumps(KINDS[sys.argv[1]](sys.argv[2])))
